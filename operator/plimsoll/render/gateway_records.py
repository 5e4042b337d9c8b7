"""What has to be known to write HAProxy's configuration?"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Affinity(StrEnum):
    """What keeps the requests of one conversation on one worker, for its prefix cache."""

    NONE = "None"
    """Nothing: the worker with the fewest requests for its speed."""
    SESSION = "Session"
    """The header X-Session-Id, which vLLM reads too."""
    CONVERSATION = "Conversation"
    """X-Session-Id, else the first two messages, which a conversation repeats with every turn."""


class GateLane(NamedTuple):
    """One lane, as clients meet it."""

    name: str
    """Its name: the backend's, and what errors and logs say."""
    most_tokens: int
    """Prompt and answer of one request together, in tokens; larger ones go to a lane that holds them."""
    answer_tokens: int
    """What an answer is taken for when the request sets no max_tokens."""
    queue_length: int = 64
    """Requests that may wait."""
    queue_seconds: int = 10
    """How long one may wait."""
    retry_after_seconds: tuple[int, int] = (1, 4)
    """Retry-After is drawn from this range, so that clients do not come back all at once."""
    priority: int | None = None
    """Told to the engine with each request; None tells it nothing."""
    keys: tuple[str, ...] = ()
    """Names of the API keys whose requests are of this lane."""
    min_body_bytes: int | None = None
    """Bodies from this size on are of this lane; None leaves it to the count of tokens."""


class GateServer(NamedTuple):
    """One place for a worker."""

    name: str
    """Its name, the same in every lane."""
    address: str | None = None
    """Host and port of the worker; None where nobody stands yet."""
    slots: tuple[int, ...] = ()
    """Requests at once, by lane; 0 closes the lane there."""
    weight: int = 1
    """1 to 256, by speed."""


class GateText(NamedTuple):
    """All that the configuration is written from."""

    lanes: tuple[GateLane, ...]
    """The lanes; the first is for requests that nothing else decides for."""
    servers: tuple[GateServer, ...]
    """Places for workers, more than there are workers."""
    port: int = 8000
    """Where clients come."""
    metrics_port: int = 8405
    """Where Prometheus and the kubelet's probes come."""
    host: str = ""
    """Address to listen on; empty for all."""
    run_folder: str = "/run/plimsoll"
    """Where sockets and maps lie, shared with the keeper."""
    threads: int = 1
    """Threads of HAProxy. One carries thousands of requests a second; two may count at the same moment and
    hand out one request too many (measured: docs/measured/gateway.md)."""
    most_body_bytes: int = 256 << 10
    """The largest body; it is read whole before a slot is taken."""
    has_keys: bool = False
    """Whether clients need an API key."""
    affinity: Affinity = Affinity.NONE
    """What keeps a conversation on one worker."""
    longest_answer_seconds: int = 900
    """How long a request may run, and so how long a gate that is to go waits for the last one."""
    silent_seconds: int = 600
    """How long an engine may stay silent: the wait for the first token of a long prompt."""
    request_seconds: int = 10
    """How long headers, and then the body, may take to arrive."""
    idle_seconds: int = 60
    """How long a client may neither send nor read."""
    begins_closed: bool = False
    """Whether every lane begins closed: another gate still holds requests."""
