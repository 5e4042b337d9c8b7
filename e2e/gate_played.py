"""The containers of a gate's pod as processes here: what its kubelet would start, on a fake node that has none.

    with PlayedGate(world, pod, folder): ...

Commands, arguments, environment and files are the pod's own. Only places differ: its folders lie below `folder`,
and HAProxy listens on the pod's address, which leads here (see stand_ins/engines.py). Only inside `netns.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from controlplane.cluster import Manifest
from controlplane.haproxy import OLDEST_SUITE, haproxy
from controlplane.processes import Child
from gate_witness import page
from patience import Patience, eventually
from plimsoll.render.gateway_objects import HAPROXY, KEEPER, METRICS_PORT, PAGE_PORT

FOLDERS: Final = ("/etc/plimsoll", "/run/plimsoll")
PROGRAM: Final = (sys.executable, "-m", "plimsoll.cli.main")
"""The keeper's image has `plimsoll` as its entry point."""


class PlayedGate:
    """HAProxy and the keeper of one gate, from the pod that the operator made."""

    def __init__(self, pod: Manifest, folder: Path, *, suite: str = OLDEST_SUITE) -> None:
        self.pod, self.folder, self.suite = pod, folder, suite
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        spec = self.pod["spec"]
        (prepare,) = spec["initContainers"]
        containers = {each["name"]: each for each in spec["containers"]}
        for place in FOLDERS:
            self._here(place).mkdir(parents=True)
        self._write_files(spec["volumes"])
        try:
            self._plimsoll(prepare)
            self._start(HAPROXY, (haproxy(self.suite), *self._words(containers[HAPROXY])[1:]))
            words = (*PROGRAM, *self._words(containers[KEEPER]))
            self._start(KEEPER, words, self._environment(containers[KEEPER]))
            eventually(self._serves, within=Patience.PART_READY, says="the gate has a worker")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """The pod's."""
        return str(self.pod["status"]["podIP"])

    def logged(self) -> str:
        """All that both have written."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _serves(self) -> bool:
        text = page(self.pod, METRICS_PORT, "/metrics")
        return 'haproxy_server_status{proxy="pool",server="s000",state="UP"} 1' in text

    def _write_files(self, volumes: list[Manifest]) -> None:
        """What the downward API shows of the pod's annotations."""
        (items,) = (each["downwardAPI"]["items"] for each in volumes if "downwardAPI" in each)
        for item in items:
            name = item["fieldRef"]["fieldPath"].partition("'")[2].rstrip("']")
            text = self._moved(self.pod["metadata"]["annotations"][name])
            for port in (8000, METRICS_PORT):
                text = text.replace(f"    bind :{port}\n", f"    bind {self.address}:{port}\n")
            (self._here(FOLDERS[0]) / item["path"]).write_text(text)

    def _here(self, place: str) -> Path:
        return self.folder / place.lstrip("/")

    def _moved(self, text: str) -> str:
        for place in FOLDERS:
            text = text.replace(place, str(self._here(place)))
        return text

    def _words(self, container: Manifest) -> list[str]:
        words = [*container.get("command", ()), *container.get("args", ())]
        return [self._moved(word) for word in words]

    def _environment(self, container: Manifest) -> dict[str, str]:
        said = {each["name"]: self._moved(each["value"]) for each in container.get("env", ())}
        places = {
            "FOLDER": str(self._here(FOLDERS[1])),
            "ROOMS": str(self._here(FOLDERS[0]) / "rooms.json"),
            "WORKERS": str(self._here(FOLDERS[0]) / "workers.json"),
            "HOST": self.address,
            "PORT": str(PAGE_PORT),
            "NAME": str(self.pod["metadata"]["name"]),
        }
        return {**os.environ, **{f"PLIMSOLL_KEEPER_{k}": v for k, v in places.items()}, **said}

    def _plimsoll(self, container: Manifest) -> None:
        words = (*PROGRAM, *self._words(container))
        with (self.folder / f"{container['name']}.log").open("wb") as log:
            environment = self._environment(container)
            subprocess.run(words, env=environment, stdout=log, stderr=log, check=True)

    def _start(self, name: str, words: tuple[Any, ...], env: dict[str, str] | None = None) -> None:
        child = Child(name, words, log=self.folder / f"{name}.log", cwd=self.folder, env=env)
        self._stack.callback(child.kill)
