"""A real Prometheus, Debian's, that knows a past which a story writes."""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def prometheus(folder: Path, text: str) -> Iterator[int]:
    """A real Prometheus whose past is `text`; gives its port."""
    programs, told, data = prometheus_programs(), folder / "past.txt", folder / "data"
    told.write_text(text)
    run(programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", told, data)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
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


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=Patience.HTTP_ANSWER)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()
