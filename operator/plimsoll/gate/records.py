"""What does the gate know of lanes and workers, and how are its limits written?

Limits are tuples in the order of the lanes: a lane's place is its name. The rooms are Records, for the
operator hands them to the keeper as JSON; what is seen and done several times a second is a NamedTuple.
"""

from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from plimsoll.facts.record import Record

Slots = tuple[int, ...]
"""Requests by lane, in the order of the lanes. 0 closes the lane on that worker."""


class LaneRoom(Record):
    """One class of traffic, as the gate counts it."""

    name: str
    """Name of the lane."""
    tokens: Annotated[int, Field(ge=1)]
    """KV tokens that one request may take: prompt and answer together."""
    share_percent: Annotated[int, Field(ge=0, le=100)] = 100
    """Its part of each worker's KV tokens; all lanes together have at most 100."""
    priority: int = 0
    """Lower is served sooner; among equals the order of the lanes decides."""
    borrow: bool = False
    """Whether it may use what other lanes leave idle."""
    most_per_worker: Annotated[int, Field(ge=1)] | None = None
    """Requests of it that the fastest worker computes at once, at most; a slower one in proportion, at
    least one. Lending does not go beyond it either."""
    bytes_per_token_hundredths: Annotated[int, Field(ge=1)] | None = None
    """Bytes of body per token, times 100, where the user knows it; None where traffic is to tell."""


class WorkerRoom(Record):
    """What one worker holds, as its plan says."""

    pool: str
    """Name of its pool: workers of one pool are alike."""
    kv_tokens: Annotated[int, Field(ge=0)]
    """Tokens of its KV cache."""
    max_num_seqs: Annotated[int, Field(ge=0)]
    """Sequences that its engine runs at once."""
    block_tokens: Annotated[int, Field(ge=1)] = 1
    """Tokens in one block: a request takes whole ones."""
    slot_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of one slot, where the engine divides its cache beforehand (llama.cpp): every request takes a
    whole one, whatever its lane, and none may be larger. None where requests take what they need."""
    speed: Annotated[float, Field(gt=0, le=1)] | None = None
    """How fast it computes beside the fastest, which has 1; None when nobody knows."""


class GateRooms(Record):
    """All that is planned for one gate: the same in the operator, the keeper and the tests."""

    lanes: tuple[LaneRoom, ...]
    """The lanes, in the order of the limits."""
    pools: tuple[WorkerRoom, ...] = ()
    """One worker of each pool."""
    spreads_sessions: bool = False
    """Whether sessions are not kept on one worker, although the gate could: their prefixes are not found there."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        names = [lane.name for lane in self.lanes]
        if len(set(names)) != len(names):
            raise ValueError(f"lanes {', '.join(names)} have a name twice")
        total = sum(lane.share_percent for lane in self.lanes)
        if total > 100:
            raise ValueError(f"shares of the lanes add up to {total}%, at most 100% can be given")
        return self

    def of_pool(self, name: str) -> WorkerRoom | None:
        """The room of a worker of that pool; None when the pool is not planned for."""
        return next((pool for pool in self.pools if pool.pool == name), None)


class Part(NamedTuple):
    """What one gate may promise on one worker: all of it, or its part when there are several gates."""

    tokens: Slots
    """KV tokens of one request by lane, in whole blocks of that worker."""
    planned: Slots
    """Requests by lane as planned, before anything is lent."""
    most: Slots
    """Requests by lane that lending may not exceed."""
    kv_tokens: int
    """KV tokens that may be promised."""
    sequences: int
    """Requests of all lanes at once."""


class Promise(NamedTuple):
    """What a set of requests may take of a worker."""

    tokens: int
    """KV tokens when every request uses its whole bound."""
    sequences: int
    """Requests."""

    def is_within(self, part: Part) -> bool:
        """Whether the worker holds that."""
        return self.tokens <= part.kv_tokens and self.sequences <= part.sequences


def promise(part: Part, requests: Slots) -> Promise:
    """What so many requests of each lane may take of the worker."""
    return Promise(
        tokens=sum(map(int.__mul__, requests, part.tokens)),
        sequences=sum(requests),
    )


class Others(NamedTuple):
    """What other gates hold of one worker, or may come to hold."""

    lanes: Slots = ()
    """Requests by lane, in the order of ours; empty where there are none."""
    more: Promise = Promise(0, 0)
    """What they may take beyond these: other lanes, and what they may still raise."""
    is_known: bool = True
    """False while one of them does not say: it may hold anything."""
