"""`make site`: the documents as a site, in build/site. A link that leads nowhere, or any other warning, fails.

    python tests/build_site.py [--or-say-why]

mkdocs and its theme are of requirements.docs.lock. With `--or-say-why`, as in `make test`, a machine that cannot get
them is told so and goes on: what tests/contract/test_site.py holds needs none of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "e2e"))
from controlplane import apart  # noqa: E402 (a script of its own)

BUILD: Final = ("-m", "mkdocs", "build", "--strict")
"""Never --quiet: mkdocs counts no warning that it does not print."""


def main(words: list[str]) -> int:
    try:
        python = apart.python("docs")
    except apart.CannotBeHadError as error:
        print(f"the site is not built, for its packages cannot be had here: {error}")
        return 0 if "--or-say-why" in words else 1
    quietly = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run([python, *BUILD], cwd=ROOT, env=quietly, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
