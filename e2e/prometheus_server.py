"""A real Prometheus, Debian's, that knows a past which a story writes, or scrapes what a story serves."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from controlplane.cluster import free_ports
from controlplane.fetch import prometheus_programs, run
from controlplane.processes import Child
from patience import Patience, eventually


def why_not() -> str | None:
    """Why there can be none here, and no promtool; None when there can."""
    if shutil.which("apt-get") is None:
        return "Prometheus and promtool come from Debian, and apt-get is not here"
    return None


@contextmanager
def prometheus(
    folder: Path, text: str = "", *, scrapes: Sequence[Mapping[str, Any]] = ()
) -> Iterator[int]:
    """A real Prometheus whose past is `text`, and which scrapes by these configurations; gives its port."""
    programs, told, data = prometheus_programs(), folder / "past.txt", folder / "data"
    if text:
        told.write_text(text)
        run(programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", told, data)
    # JSON is YAML
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": list(scrapes)}))
    (port,) = free_ports(1)
    child = Child(
        "prometheus",
        (
            programs / "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
        ),
        log=folder / "log" / "prometheus.log",
    )
    try:
        eventually(lambda: _ready(port), within=Patience.PART_READY, says="Prometheus is ready")
        yield port
    finally:
        child.terminate()


def asked(port: int, path: str, words: Mapping[str, Any]) -> Any:
    """The data of an answer of Prometheus' API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=Patience.HTTP_ANSWER)
    try:
        connection.request("GET", f"{path}?{urlencode(words)}")
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert answer["status"] == "success", f"{words}: {answer}"
    return answer["data"]


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=Patience.HTTP_ANSWER)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()
