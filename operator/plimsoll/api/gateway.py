"""What stands in front of the workers: which lanes with which bounds, and what does each worker hold?

From the user's lanes and the plans of the pools to what the gate promises (`gate`) and to what HAProxy is
told (`render.gateway`). Traffic that is not split is one lane, in which a worker's slots are the plan's own
concurrency.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.traffic import Affinity, LaneSpec, Queue
from plimsoll.engines.base import EngineName
from plimsoll.gate.allocate import closed_everywhere, slots_of, weights_of
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom
from plimsoll.plan.lanes_pace import relative_speeds
from plimsoll.plan.records import Plan
from plimsoll.render.gateway_records import Affinity as GateAffinity
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from plimsoll.units import round_up

WHOLE: Final = "all"
"""Name of the one lane of traffic that is not split."""
QUEUE_LENGTH: Final = 64
QUEUE_SECONDS: Final = 10
FAR_LONGER: Final = 4
"""A lane whose median prompt is that many times another lane's longest is slowed by its own prefill."""
LONG_PER_WORKER: Final = 2
"""Requests of such a lane on one worker: with more, long prompts only take turns, and chat waits for all of
them (measured: docs/measured/gateway.md)."""
BYTES_PER_TOKEN: Final = 6
"""For the bound on bodies: Russian has 5.8 bytes per token, other text less (docs/measured/gateway.md)."""
BODY_STEP_BYTES: Final = 64 << 10
LARGEST_BODY_BYTES: Final = 4 << 20
SPARE_SERVERS: Final = 8
"""Places for workers beyond twice the replicas: rollouts, and growth without a new gate."""


def rooms_of(spec: InferenceDeploymentSpec, plans: Mapping[str, Plan]) -> GateRooms:
    """What is promised: the lanes, and one worker of each pool that has a plan."""
    planned = sorted(plans.items())
    speeds = relative_speeds((plan.gpu_product, plan.cards) for _, plan in planned)
    pools = tuple(
        _worker(name, plan, speed) for (name, plan), speed in zip(planned, speeds, strict=True)
    )
    lanes = spec.traffic.lanes if spec.traffic is not None else ()
    if not lanes:
        return GateRooms(lanes=(LaneRoom(name=WHOLE, tokens=_one_slot(pools)),), pools=pools)
    shortest = min(tokens_of(lane) for lane in lanes)
    return GateRooms(
        lanes=tuple(
            LaneRoom(
                name=lane.name,
                tokens=tokens_of(lane),
                share_percent=lane.share_percent,
                priority=lane.priority,
                borrow=tokens_of(lane) == shortest if lane.borrow is None else lane.borrow,
                most_per_worker=_most_per_worker(lane, lanes),
                bytes_per_token_hundredths=None
                if lane.bytes_per_token is None
                else round(100 * lane.bytes_per_token),
            )
            for lane in lanes
        ),
        pools=pools,
    )


def tokens_of(lane: LaneSpec) -> int:
    """Tokens that one request of the lane may take, prompt and answer together."""
    return lane.tokens_per_request or lane.prompt_tokens.p99 + lane.output_tokens.p99


def problems_of(rooms: GateRooms) -> tuple[str, ...]:
    """What a person should know: lanes that no worker can serve."""
    return tuple(
        f"lane {lane.name}: one request of {lane.tokens:,} tokens fits no worker; the largest holds "
        f"{max((pool.kv_tokens for pool in rooms.pools), default=0):,}. "
        "Shorten its requests (tokensPerRequest) or plan for larger cards"
        for lane in rooms.lanes
        if lane.name in closed_everywhere(rooms.pools, rooms.lanes) and rooms.pools
    )


def text_of(
    spec: InferenceDeploymentSpec,
    rooms: GateRooms,
    *,
    max_model_len: int,
    workers: Sequence[tuple[str, str]] = (),
) -> GateText:
    """What HAProxy is told.

    `workers` are (pool, address) of those that serve already; the keeper seats the others. A pool
    without a plan has no place. `max_model_len` is the longest of the pools, in tokens.
    """
    gateway = spec.gateway
    weights = dict(
        zip((pool.pool for pool in rooms.pools), weights_of(rooms.pools, rooms.lanes), strict=True)
    )
    seated = [
        (address, slots_of(room, rooms.lanes), weights[pool])
        for pool, address in workers
        if (room := rooms.of_pool(pool)) is not None
    ]
    places = max(len(seated), 2 * spec.replicas) + SPARE_SERVERS
    servers = [
        GateServer(name=f"s{place:03d}", address=address, slots=slots, weight=weight)
        for place, (address, slots, weight) in enumerate(seated)
    ]
    servers += [GateServer(name=f"s{place:03d}") for place in range(len(servers), places)]
    lanes = spec.traffic.lanes if spec.traffic is not None else ()
    longest = max((tokens_of(lane) for lane in lanes), default=max_model_len)
    return GateText(
        lanes=tuple(_lane(lane, gateway.queue) for lane in lanes)
        or (_whole(spec, max_model_len, gateway.queue),),
        servers=tuple(servers),
        has_keys=gateway.keys_secret is not None,
        affinity=GateAffinity((gateway.affinity or Affinity.NONE).value),
        most_body_bytes=min(
            LARGEST_BODY_BYTES, round_up(longest * BYTES_PER_TOKEN, BODY_STEP_BYTES)
        ),
    )


def _worker(name: str, plan: Plan, speed: float | None) -> WorkerRoom:
    """A plan as the gate counts it. Slots of llama.cpp are divided beforehand."""
    sequences = plan.concurrency.max_num_seqs
    has_slots = plan.engine is EngineName.LLAMA_CPP
    return WorkerRoom(
        pool=name,
        kv_tokens=plan.kv.pool_tokens,
        max_num_seqs=sequences,
        block_tokens=plan.kv.block_tokens or 1,
        slot_tokens=max(1, plan.kv.pool_tokens // max(1, sequences)) if has_slots else None,
        speed=speed,
    )


def _one_slot(pools: Sequence[WorkerRoom]) -> int:
    """Tokens with which each worker's slots are its plan's concurrency, rounded down to its blocks."""
    sizes = [
        pool.kv_tokens // pool.max_num_seqs // pool.block_tokens * pool.block_tokens
        for pool in pools
        if pool.max_num_seqs
    ]
    return max(1, min(sizes, default=1))


def _most_per_worker(lane: LaneSpec, lanes: Sequence[LaneSpec]) -> int | None:
    if lane.max_per_worker is not None:
        return lane.max_per_worker
    is_far_longer = any(
        lane.prompt_tokens.p50 >= FAR_LONGER * other.prompt_tokens.p99 for other in lanes
    )
    return LONG_PER_WORKER if is_far_longer else None


def _lane(lane: LaneSpec, queue: Queue | None) -> GateLane:
    length, seconds = _queue(lane.queue, queue)
    return GateLane(
        name=lane.name,
        most_tokens=tokens_of(lane),
        answer_tokens=lane.output_tokens.p99,
        queue_length=length,
        queue_seconds=seconds,
        retry_after_seconds=_retry_after(seconds),
        priority=lane.priority,
        keys=lane.keys,
    )


def _whole(spec: InferenceDeploymentSpec, max_model_len: int, queue: Queue | None) -> GateLane:
    """All traffic as one lane: up to the engine's own longest sequence."""
    length, seconds = _queue(None, queue)
    traffic = spec.traffic
    answer = traffic.output_tokens.p99 if traffic is not None and traffic.output_tokens else 0
    return GateLane(
        name=WHOLE,
        most_tokens=max_model_len,
        answer_tokens=min(answer, max_model_len),
        queue_length=length,
        queue_seconds=seconds,
        retry_after_seconds=_retry_after(seconds),
    )


def _queue(*said: Queue | None) -> tuple[int, int]:
    """Length and seconds: what the first says that says something."""
    queues = [queue for queue in said if queue is not None]
    length = next((queue.length for queue in queues if queue.length is not None), QUEUE_LENGTH)
    seconds = next((queue.timeout_seconds for queue in queues if queue.timeout), None)
    return length, QUEUE_SECONDS if seconds is None else seconds


def _retry_after(queue_seconds: int) -> tuple[int, int]:
    """A range as wide as the queue is patient: short queues are tried again soon, long ones later. OpenAI's
    clients obey up to 60 s (openai-python 2.x, _base_client.py)."""
    low = max(1, min(20, queue_seconds // 4))
    return low, min(60, 3 * low)
