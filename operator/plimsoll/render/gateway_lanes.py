"""Of which lane is a request, and what may one request be?

The cheapest evidence first: the API key, which nobody can forge; the header X-Lane, with which a client
asks for a lane; else the first lane. Then the size: body bytes over bytes per token, and the answer that
was asked for. A request that needs more tokens than its lane holds goes to the smallest lane that does.

The body is looked at, but that is a hint and no wall: HAProxy takes the first of two equal names, Python
the last. A wrong guess dents the promise of a lane and breaks no memory: the engine's pool is fixed, and
its longest sequence is pinned.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from plimsoll.render.gateway_records import Affinity, GateLane, GateText
from plimsoll.render.gateway_words import Refusal, refuse

HUNDREDTHS_PER_TOKEN: Final = 300
"""Bytes of body per token, times 100, until traffic tells: 1.6 (telemetry) to 5.8 (Russian) with the
vocabularies of Llama 3 and Qwen 2 (measured: docs/measured/gateway.md)."""
MOST_BYTES_PER_TOKEN: Final = 16
"""Russian with \\uXXXX escapes, the thinnest text seen: what is too long even so is refused."""


def lane_choice(gate: GateText) -> Iterator[str]:
    """The rules, in order; afterwards txn.lane is set for everything that generates."""
    first = gate.lanes[0]
    yield f"    http-request set-var(txn.lane) str({first.name}) if generates"
    if len(gate.lanes) > 1:
        for lane in gate.lanes:
            yield (
                f"    http-request set-var(txn.lane) str({lane.name}) if generates "
                f"{{ req.hdr(X-Lane) -m str {lane.name} }}"
            )
        for lane in gate.lanes:
            if lane.min_body_bytes is not None:
                yield (
                    f"    http-request set-var(txn.lane) str({lane.name}) if generates "
                    f"{{ req.hdr(content-length) -m int ge {lane.min_body_bytes} }}"
                )
    for lane in gate.lanes:
        if lane.keys:
            yield (
                f"    http-request set-var(txn.lane) str({lane.name}) if generates "
                f"{{ var(txn.key) -m str {' '.join(lane.keys)} }}"
            )
    yield "    http-request del-header X-Lane"
    yield f"    http-request wait-for-body time {gate.request_seconds}s if generates"
    yield from _looked_at()
    yield from _sequences()
    yield from _sizes(gate)
    if gate.affinity is not Affinity.NONE:
        yield from _session(gate)


def _looked_at() -> Iterator[str]:
    """The longest answer that was asked for, under its three names."""
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        yield (
            f"    http-request set-var(txn.answer) req.body,json_query('$.{name}','int') "
            "if generates !{ var(txn.answer) -m found }"
        )


def _sequences() -> Iterator[str]:
    """One slot is one sequence: n above 1 and lists of prompts are several in one request."""
    for name in ("n", "best_of"):
        yield f"    http-request set-var(txn.many) req.body,json_query('$.{name}','int') if generates"
        yield refuse(
            Refusal(
                400,
                "several_sequences",
                f"{name} is above 1: send that many requests, each has a slot",
            ),
            "generates { var(txn.many) -m int gt 1 }",
        )
    several = Refusal(
        400, "several_sequences", "several prompts in one request: send one request for each"
    )
    yield "    http-request set-var(txn.second) req.body,json_query('$.prompt[1]') if generates"
    # a number is a token of one prompt, a text or a list of numbers is a second prompt
    yield refuse(
        several, "generates { var(txn.second) -m found } !{ var(txn.second) -m reg ^[0-9]+$ }"
    )
    yield refuse(several, "generates { req.body,json_query('$.prompt[1][0]') -m found }")


def _sizes(gate: GateText) -> Iterator[str]:
    """Tokens needed, and a lane that holds them."""
    by_size = sorted(gate.lanes, key=lambda lane: lane.most_tokens)
    largest = by_size[-1]
    for lane in gate.lanes:
        yield (
            f"    http-request set-var(txn.answer) int({lane.answer_tokens}) if generates "
            f"!{{ var(txn.answer) -m found }} {{ var(txn.lane) -m str {lane.name} }}"
        )
    yield (
        "    http-request set-var(txn.per_token) var(txn.lane),"
        f"map_str_int({gate.run_folder}/bytes-per-token.map,{HUNDREDTHS_PER_TOKEN}) if generates"
    )
    yield (
        "    http-request set-var(txn.needs) req.hdr(content-length),mul(100),div(txn.per_token),add(txn.answer) "
        "if generates"
    )
    yield (
        f"    http-request set-var(txn.needs_least) req.hdr(content-length),div({MOST_BYTES_PER_TOKEN}),"
        "add(txn.answer) if generates"
    )
    yield refuse(
        Refusal(
            400,
            "too_many_tokens",
            "this request needs %[var(txn.needs_least)] tokens or more, prompt and answer together; "
            f"{largest.most_tokens} are served here",
        ),
        f"generates {{ var(txn.needs_least) -m int gt {largest.most_tokens} }}",
    )
    for smaller, larger in pairwise(by_size):
        yield _moved(smaller, larger)


def _moved(smaller: GateLane, larger: GateLane) -> str:
    return (
        f"    http-request set-var(txn.lane) str({larger.name}) if generates "
        f"{{ var(txn.lane) -m str {smaller.name} }} {{ var(txn.needs) -m int gt {smaller.most_tokens} }}"
    )


def _session(gate: GateText) -> Iterator[str]:
    """What is hashed; without it HAProxy takes workers in turn. So it does where the keeper says that the prefix
    cache finds nothing."""
    yield "    http-request set-var(txn.session) req.hdr(X-Session-Id) if generates"
    if gate.affinity is Affinity.CONVERSATION:
        for place in (1, 0):  # the first is the system prompt of everybody, where there is one
            yield (
                f"    http-request set-var(txn.session) req.body,json_query('$.messages[{place}].content') "
                "if generates !{ var(txn.session) -m found }"
            )
    yield (
        "    http-request unset-var(txn.session) if generates "
        f"{{ str(sessions),map_str({gate.run_folder}/gate.map) -m found }}"
    )
