"""Do the operator's addresses answer, by their own word?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_well = self.path == "/healthz"
        body = b"ok" if is_well else b"reconciling has stopped"
        self.send_response(200 if is_well else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_address_that_answers_is_ok(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["healthy", f"{address}/healthz"]) == Exit.FITS
    assert f"{address}/healthz: ok\n" == capsys.readouterr().out


def test_one_that_does_not_is_named_with_what_it_said(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["healthy", f"{address}/healthz", f"{address}/readyz"]) == Exit.DIFFERS
    said = capsys.readouterr()
    assert f"{address}/healthz: ok\n" == said.out
    assert f"{address}/readyz: answered 503: reconciling has stopped\n" == said.err


def test_nobody_there_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["healthy", "http://127.0.0.1:1/healthz"]) == Exit.DIFFERS
    assert "no answer" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["file:///etc/passwd", "plimsoll:8081", ""])
def test_only_addresses_of_the_web_are_asked(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["healthy", address]) == Exit.BAD_INPUT
    assert repr(address) in capsys.readouterr().err
