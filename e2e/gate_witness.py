"""What do a gate and the llama-servers behind it say of themselves, over and over, while requests run?"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from controlplane.cluster import Manifest
from patience import Patience, stretched
from plimsoll.render.gateway_objects import METRICS_PORT, PAGE_PORT
from real_worker import PORT

PAUSE_SECONDS: Final = 0.25
_SAMPLE: Final = re.compile(r"^([a-z_:]+)(?:\{([^}]*)\})? ([0-9.e+-]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'([a-z_]+)="([^"]*)"')
COUNTERS: Final = (
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "tokens_predicted_total",
    "requests_processing",
    "requests_deferred",
)


def page(pod: Manifest, port: int, path: str) -> str:
    """What a pod answers there. Raises OSError or HTTPException."""
    connection = http.client.HTTPConnection(
        pod["status"]["podIP"], port, timeout=stretched(Patience.HTTP_ANSWER)
    )
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def state(gate: Manifest) -> dict[str, Any]:
    """What the keeper knows."""
    found: dict[str, Any] = json.loads(page(gate, PAGE_PORT, "/state"))
    return found


def samples(text: str, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Labels and value of each sample of one family."""
    for found, labels, value in _SAMPLE.findall(text):
        if found == name:
            yield dict(_LABEL.findall(labels)), float(value)


def answered(gate: Manifest) -> Counter[tuple[str, str, str]]:
    """Requests by lane, status and reason, as the keeper counted HAProxy's lines."""
    text = page(gate, PAGE_PORT, "/metrics")
    return Counter(
        {
            (labels["lane"], labels["status"], labels["reason"]): int(value)
            for labels, value in samples(text, "plimsoll_gate_requests_total")
        }
    )


def most_at_once(gate: Manifest, lane: str) -> dict[str, int]:
    """By place of a worker: the most requests of a lane that HAProxy ever had there at once."""
    text = page(gate, METRICS_PORT, "/metrics")
    return {
        labels["server"]: int(value)
        for labels, value in samples(text, "haproxy_server_max_sessions")
        if labels["proxy"] == lane
    }


class Witness:
    """Reads the counters of every llama-server that it was told of, until the block ends.

    What was counted before the block began is left out. The last figures of a worker that goes stay: between its
    last request and its end it is read many times.
    """

    def __init__(self) -> None:
        self.last: dict[str, Mapping[str, float]] = {}
        """By pod."""
        self.most: Counter[str] = Counter()
        """By pod: the most that it ever had, what it computes and what waits in it together."""
        self.looks = 0
        self._before: dict[str, Mapping[str, float]] = {}
        self._pods: dict[str, Manifest] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def sees(self, *pods: Manifest) -> None:
        """From now on these as well."""
        self._pods |= {str(pod["metadata"]["name"]): pod for pod in pods}

    def __enter__(self) -> Self:
        self.look()
        self._before = dict(self.last)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """Once at everyone; one that is gone, or not there yet, says nothing."""
        for name, pod in list(self._pods.items()):
            try:
                text = page(pod, PORT, "/metrics")
            except (OSError, http.client.HTTPException):
                continue
            found = {
                counter: value
                for counter in COUNTERS
                for _, value in samples(text, f"llamacpp:{counter}")
            }
            made = "tokens_predicted_total"
            if len(found) < len(COUNTERS) or found[made] < self.last.get(name, found)[made]:
                continue  # not whole, or another engine has got its address
            self.last[name] = found
            busy = int(found["requests_processing"] + found["requests_deferred"])
            self.most[name] = max(self.most[name], busy)
        self.looks += 1

    def total(self, *counters: str) -> int:
        """Over all workers, what these counters rose by."""
        return int(
            sum(
                each[counter] - self._before.get(name, {}).get(counter, 0)
                for name, each in self.last.items()
                for counter in counters
            )
        )

    def _go_on(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            self.look()
