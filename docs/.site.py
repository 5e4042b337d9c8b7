"""Where do links lead that leave docs/, once the pages are a site?

Files of the repository outside docs/ are no pages of the site: their links become plain words.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[(?P<words>[^\]]*)\]\((?P<target>[^)#\s:]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """One page, before it is rendered."""
    folder = posixpath.dirname(page.file.src_uri)

    def told(match: re.Match[str]) -> str:
        where = posixpath.normpath(posixpath.join(folder, match["target"]))
        return match["words"] if where.startswith("../") else match[0]

    return _LINK.sub(told, markdown)
