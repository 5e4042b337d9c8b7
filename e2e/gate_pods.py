"""Gates as pods, without a cluster: real HAProxy, the real keeper as a process, and the operator's own words.

Stood in for are the kubelet (files from annotations, the probe, preStop and signals as it gives them), the Service
(which leads to gates that are ready and not on their way out) and the Deployment (the elder goes when the next one
is ready). What the operator tells is what `words_for` says of these pods.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gate_box import Haproxy
from gate_client import Answer, ask
from plimsoll.api.gateway_words import GateSeen, GateWord, Message, knows, words_for
from plimsoll.facts.worker import WorkerFacts
from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import PodSeen
from plimsoll.render import gateway_objects
from plimsoll.render.gateway import READY_PATH
from plimsoll.render.gateway_objects import FILES, PAGE_PORT, RUN_FOLDER, STREAMS_SECONDS
from plimsoll.render.gateway_records import GateText
from plimsoll.render.lifecycle import PRE_STOP_SECONDS

PROXIES_SECONDS: Final = 1
"""In which proxies forget a pod here; a cluster is given ten."""
QUESTION: Final = "new"


def pre_stop(folder: Path, process: int) -> str:
    """The pod's own, with this folder and process, and a shorter wait."""
    script = gateway_objects._PRE_STOP
    for before, after in (
        (RUN_FOLDER, str(folder)),
        (f"sleep {PRE_STOP_SECONDS};", f"sleep {PROXIES_SECONDS};"),
        ("kill -USR1 1", f"kill -USR1 {process}"),
        (f"; sleep {STREAMS_SECONDS}", ""),
    ):
        assert before in script
        script = script.replace(before, after)
    return script


class GatePod:
    """One pod."""

    def __init__(
        self, folder: Path, name: str, text: GateText, question: str, *, suite: str
    ) -> None:
        self.name, self.question, self.folder = name, question, folder / name
        self.run = self.folder / "run"
        self.address = (
            f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"
        )
        self.haproxy = Haproxy(self.run, text, suite=suite)
        self.haproxy.text = self.haproxy.text._replace(host=self.address)
        self.haproxy.keeps_maps = True
        self.annotations: dict[str, str] = {}
        self.is_ready = False
        self.ends_seconds: float | None = None
        self.keeper: subprocess.Popen[bytes] | None = None
        self._stopping: subprocess.Popen[bytes] | None = None

    @property
    def seen(self) -> GateSeen:
        """As the operator sees it."""
        said = {
            field: self.annotations.get(name, "")
            for field, name in (
                ("rooms", FILES["rooms.json"]),
                ("workers", FILES["workers.json"]),
                ("standing", FILES["standing.json"]),
            )
        }
        return GateSeen(
            name=self.name,
            uid=self.name,
            is_ready=self.is_ready,
            ends_seconds=self.ends_seconds,
            question=self.question,
            address=self.address,
            **said,
        )

    def hears(self, word: GateWord) -> None:
        """What the kubelet does when annotations change: a terminating pod is shown nothing any more."""
        self.annotations |= word.annotations
        if self.ends_seconds is not None:
            return
        for file, name in FILES.items():
            if name in word.annotations:
                fresh = self.folder / f".{file}"
                fresh.write_text(word.annotations[name])
                fresh.rename(self.folder / file)

    async def start(self) -> None:
        self.folder.mkdir(parents=True)
        command = self._command()
        prepared = await asyncio.to_thread(
            subprocess.run, [*command, "--prepare"], check=True, capture_output=True
        )
        assert 0 == prepared.returncode
        await self.haproxy.start()
        self.starts_keeper()

    def starts_keeper(self) -> None:
        log = (self.folder / "keeper.log").open("ab")
        self.keeper = subprocess.Popen(self._command(), stderr=log, stdout=log)
        log.close()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "plimsoll.cli.main", "keeper", "--folder", str(self.run)),
            *("--rooms", str(self.folder / "rooms.json")),
            *("--workers", str(self.folder / "workers.json")),
            *("--standing", str(self.folder / "standing.json")),
            *("--host", self.address, "--port", str(PAGE_PORT), "--name", self.name),
        ]

    async def keeper_dies(self) -> None:
        """And does not come back."""
        assert self.keeper is not None
        self.keeper.kill()
        await asyncio.to_thread(self.keeper.wait)

    async def probe(self) -> None:
        """The readiness probe."""
        answer = await ask(
            self.haproxy.text.metrics_port,
            method="GET",
            path=READY_PATH,
            host=self.address,
            within=2,
        )
        self.is_ready = answer.status == 200

    def deleted(self) -> None:
        """Both containers at once: preStop for HAProxy, SIGTERM for the keeper."""
        self.ends_seconds = time.time() + PRE_STOP_SECONDS + STREAMS_SECONDS
        assert self.haproxy.process is not None
        script = pre_stop(self.run, self.haproxy.process.pid)
        self._stopping = subprocess.Popen(["/bin/sh", "-c", script])
        if self.keeper is not None and self.keeper.poll() is None:
            self.keeper.send_signal(signal.SIGTERM)

    @property
    def is_gone(self) -> bool:
        """Whether all its processes have ended."""
        processes = (self.haproxy.process, self.keeper, self._stopping)
        return all(each is not None and each.poll() is not None for each in processes)

    async def clean_up(self) -> None:
        for each in (self.keeper, self._stopping):
            if each is not None:
                each.kill()
                await asyncio.to_thread(each.wait)
        await self.haproxy.stop(signal.SIGKILL)


class Gates:
    """The gates of one deployment, and everybody around them."""

    def __init__(self, rooms: GateRooms, workers: Callable[[], Sequence[PodSeen]]) -> None:
        self.rooms = rooms
        self.question = QUESTION
        self.pods: list[GatePod] = []
        self.answers: list[Answer] = []
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Gates:
        self._tasks.append(asyncio.create_task(self._around()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pod in self.pods:
            await pod.clean_up()

    async def comes(self, pod: GatePod) -> GatePod:
        self.pods.append(pod)
        await pod.start()
        return pod

    def door(self) -> GatePod:
        """One of those that the Service leads to."""
        return random.choice([pod for pod in self.pods if knows(pod.seen)])

    async def asks(self, body: bytes, lane: str) -> Answer:
        """A client behind the Service."""
        pod = self.door()
        headers = {"X-Lane": lane}
        return await ask(pod.haproxy.text.port, body, host=pod.address, headers=headers)

    async def _around(self) -> None:
        """Operator, kubelet and Service, round by round."""
        while True:
            message = Message(self.rooms, self._facts(), self.question, 1)
            seen = [pod.seen for pod in self.pods]
            for word in words_for(seen, message, now_seconds=time.time()):
                next(pod for pod in self.pods if pod.name == word.pod).hears(word)
            for pod in [pod for pod in self.pods if pod.is_gone]:
                await pod.clean_up()
                self.pods.remove(pod)
            await asyncio.gather(*(pod.probe() for pod in self.pods if pod.ends_seconds is None))
            await asyncio.sleep(0.1)

    def _facts(self) -> list[WorkerFacts]:
        return [
            WorkerFacts(
                name=pod.name,
                uid=pod.name,
                pool=pod.pool,
                address=pod.address,
                is_ready=pod.is_ready,
                is_terminating=pod.is_leaving,
            )
            for pod in self._workers()
        ]
