"""A model hub in a box: the few answers of a hub's API that reading headers needs. A stand-in, no judge.

    with Hub({"org/model": {"config.json": b"..."}}) as hub:
        os.environ["HF_ENDPOINT"] = hub.url

It serves ranges, or with `serves_ranges=False` whole files whatever was asked; it answers 401 to a repository
in `gated` without the right token; with `elsewhere=True` weights are redirected to another host, as to a
content network. What it sent is counted by file.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

COMMIT: Final = "c0ffee" + "0" * 34
_INFO: Final = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?")
_FILE: Final = re.compile(r"(?:/elsewhere)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


class Hub:
    """Repositories by name: files by name. All of them are at one commit."""

    def __init__(
        self,
        repositories: Mapping[str, Mapping[str, bytes]],
        *,
        serves_ranges: bool = True,
        gated: Mapping[str, str] | None = None,
        elsewhere: bool = False,
        revisions: tuple[str, ...] = ("main", COMMIT),
    ) -> None:
        self.repositories = repositories
        self.serves_ranges = serves_ranges
        self.gated = gated or {}
        self.elsewhere = elsewhere
        self.revisions = revisions
        self.sent: Counter[str] = Counter()
        """Bytes of content that went out, by file."""
        self.asked: list[tuple[str, str]] = []
        """Each path, with the Authorization that came along."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub._answer(self)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---- answers --------------------------------------------------------------------------------

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        self.asked.append((path, request.headers.get("Authorization", "")))
        if match := _INFO.fullmatch(path):
            return self._info(request, match[1], match[2] or "main")
        if match := _FILE.fullmatch(path):
            return self._file(request, match[1], match[2], match[3])
        return self._refuse(request, 404, "")

    def _may(self, request: BaseHTTPRequestHandler, name: str, revision: str) -> bool:
        if name not in self.repositories:
            self._refuse(request, 404, "RepoNotFound")
        elif name in self.gated and self._token(request) != self.gated[name]:
            self._refuse(request, 403 if self._token(request) else 401, "GatedRepo")
        elif revision not in self.revisions:
            self._refuse(request, 404, "RevisionNotFound")
        else:
            return True
        return False

    def _token(self, request: BaseHTTPRequestHandler) -> str:
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def _info(self, request: BaseHTTPRequestHandler, name: str, revision: str) -> None:
        if not self._may(request, name, revision):
            return
        files = self.repositories[name]
        siblings = [{"rfilename": file, "size": len(held)} for file, held in files.items()]
        body = {"id": name, "sha": COMMIT, "siblings": siblings}
        self._send(request, 200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, request: BaseHTTPRequestHandler, name: str, revision: str, file: str) -> None:
        is_there = request.path.startswith("/elsewhere/")
        if not is_there and not self._may(request, name, revision):
            return None
        held = self.repositories[name].get(file)
        if held is None:
            return self._refuse(request, 404, "EntryNotFound")
        if self.elsewhere and not is_there and not file.endswith(".json"):
            where = f"http://localhost:{self.port}/elsewhere/{name}/resolve/{revision}/{file}"
            return self._send(request, 302, b"", {"Location": where})
        asked = _RANGE.fullmatch(request.headers.get("Range", ""))
        if asked is None or not self.serves_ranges:
            return self._send(request, 200, held, {}, file)
        begin, end = int(asked[1]), min(int(asked[2]), len(held) - 1)
        of = {"Content-Range": f"bytes {begin}-{end}/{len(held)}"}
        return self._send(request, 206, held[begin : end + 1], of, file)

    def _refuse(self, request: BaseHTTPRequestHandler, status: int, code: str) -> None:
        self._send(request, status, b"no", {"X-Error-Code": code} if code else {})

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        file: str = "",
    ) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        step = 64 * 1024
        try:
            for at in range(0, len(body), step):
                request.wfile.write(body[at : at + step])
                if file:
                    self.sent[file] += len(body[at : at + step])
        except OSError:  # the other side has heard enough
            request.close_connection = True
