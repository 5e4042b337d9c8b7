"""What would Plimsoll have said of the buffers that llama.cpp allocates?

Two kinds of files: llama.cpp's own loader without allocation (tests/data/llamacpp_buffers.json), in exact
bytes, and readings that people reported (tests/data/llamacpp_readings.json), planned in llamacpp_readings.py.
Any file in the same formats will do: nothing here knows a model or a case by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy import llamacpp_readings
from benchmarks.accuracy.llamacpp_models import models
from benchmarks.accuracy.row import Check, Row, Verdict

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp import memory
from plimsoll.engines.llama_cpp.blocks import weights_bytes
from plimsoll.engines.llama_cpp.bound import computed as bound
from plimsoll.engines.llama_cpp.caches import allocated_kv_bytes
from plimsoll.engines.llama_cpp.compute import Computed, compute
from plimsoll.engines.llama_cpp.context import ServerContext, refusal_of, server_context
from plimsoll.engines.llama_cpp.host import output_bytes
from plimsoll.engines.llama_cpp.placement import Placement, place
from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.facts.model import GgufFacts
from plimsoll.units import MIB

Case = Mapping[str, Any]

WITHIN: Final = 0.02
"""Compute buffers may be this much above what is allocated, and never below."""
PRINTED_MIB: Final = 0.006
"""Half of the last printed digit of a size in MiB, and a little for how it was rounded."""
PROBE_BUILD: Final = "b11434"
SERVER_BUILD: Final = "b11549"


def oracle_rows(path: Path) -> tuple[Row, ...]:
    """Every probe of the file in its order, then every server."""
    read = json.loads(path.read_text(encoding="utf-8"))
    known = models(read["models"])
    probes = (
        _probe(f"row {at}", case, known[case["model"]])
        for at, case in enumerate(read["probe_cases"])
    )
    servers = (
        _server(f"server {at}", case, known[case["model"]])
        for at, case in enumerate(read.get("server_cases", ()))
    )
    return (*probes, *servers)


def reading_rows(path: Path) -> tuple[Row, ...]:
    """Every reading of the file."""
    return llamacpp_readings.rows(path)


# --- probes ---


def _context(flags: Mapping[str, Any]) -> ServerContext:
    return server_context(
        ctx_size=flags["ctx_size"],
        slots=flags.get("parallel", 1),
        cache_type=flags.get("cache_type_k", "f16"),
        value_type=flags.get("cache_type_v", "f16"),
        unified=bool(flags.get("kv_unified", False)),
        ubatch_tokens=flags.get("ubatch_size", 512),
        flash=flags.get("flash_attn", "on") != "off",
        full_windows=bool(flags.get("swa_full", False)),
        kv_on_host=bool(flags.get("no_kv_offload", False)),
        op_offload=bool(flags.get("op_offload", True)),
    )


def _placement(gguf: GgufFacts, flags: Mapping[str, Any], devices_mib: Sequence[int]) -> Placement:
    """Without -ttensor-split the split follows what is free: here all of each device."""
    split = flags.get("tensor_split")
    shares = [float(part) for part in split.split(",")] if split else devices_mib
    experts = flags.get("n_cpu_moe", 0)
    return place(
        gguf,
        gpu_layers=flags.get("n_gpu_layers", 0) if devices_mib else 0,
        shares=tuple(shares) if devices_mib else (),
        host_experts=len(gguf.block_bytes) if flags.get("cpu_moe") else experts,
    )


def _computed(
    gguf: GgufFacts, context: ServerContext, placement: Placement, flags: Mapping[str, Any]
) -> tuple[Computed, str]:
    """The compute buffers, and what should be known about them."""
    outputs = flags.get("n_outputs_max", context.slots)
    try:
        found = compute(gguf, context, placement, outputs=outputs)
    except (KeyError, ZeroDivisionError):
        found = bound(gguf, context, placement, Release.of(PROBE_BUILD))
        return found, f"a bound: the graph of {gguf.architecture} is not known"
    if memory.is_exact(gguf):
        return found, ""
    return found, "a bound: no mix of types gives the bytes of each block"


def _probe(name: str, case: Case, gguf: GgufFacts) -> Row:
    flags, devices = case["flags"], case["devices_mib"]
    context, placement = _context(flags), _placement(gguf, flags, devices)
    found, reason = _computed(gguf, context, placement, flags)
    places = [*range(len(devices)), HOST]
    planned = {
        where: (
            weights_bytes(gguf, placement, where),
            allocated_kv_bytes(gguf, context, placement, where),
            found.host if where == HOST else found.cards[where],
        )
        for where in places
    }
    reported = {where: _reported(case["bytes"], where) for where in places}
    return Row(
        id=name,
        engine=f"llama.cpp {PROBE_BUILD}",
        model=gguf.id,
        architecture=gguf.architecture,
        card=", ".join(f"{size} MiB" for size in devices) or "host",
        checks=tuple(_probe_checks(planned, reported, devices, reason)),
        source="llama.cpp's own loader without allocation",
    )


Parts = tuple[int, int, int]
"""Weights, KV, compute."""


def _reported(by_buffer: Mapping[str, Mapping[str, int]], where: int) -> Parts:
    """Of one card, or of the host, whose bytes are partly pinned."""
    names = [f"DEV{where}"] if where != HOST else [n for n in by_buffer if not n.startswith("DEV")]
    found = [by_buffer[name] for name in names if name in by_buffer]
    return (
        sum(each["model"] for each in found),
        sum(each["context"] for each in found),
        sum(each["compute"] for each in found),
    )


def _probe_checks(
    planned: Mapping[int, Parts], reported: Mapping[int, Parts], devices: Sequence[int], reason: str
) -> Iterator[Check]:
    cards = tuple(range(len(devices))) or (HOST,)
    words = "all cards" if devices else "host"
    total = sum(sum(planned[where]) for where in cards)
    real = sum(sum(reported[where]) for where in cards)
    yield _check(f"total bytes of {words}", total, real, reason)
    for where in planned:
        named = "host" if where == HOST else f"DEV{where}"
        for part, ours, theirs in zip(
            ("weights", "kv", "compute"), planned[where], reported[where], strict=True
        ):
            yield _check(
                f"{part} bytes of {named}", ours, theirs, reason if part == "compute" else ""
            )


def _check(what: str, planned: int, reported: int, reason: str) -> Check:
    if planned == reported:
        return Check(what, planned, reported, Verdict.EQUAL)
    if planned < reported:
        return Check(what, planned, reported, Verdict.OVER, reason)
    is_near = planned <= reported * (1 + WITHIN)
    return Check(what, planned, reported, Verdict.WITHIN if is_near else Verdict.UNDER, reason)


# --- servers ---


def _server(name: str, case: Case, gguf: GgufFacts) -> Row:
    """Sizes that a server printed, without a card."""
    context = _context(case["flags"])
    placement = place(gguf, gpu_layers=0, shares=())
    row = Row(
        id=name,
        engine=f"llama.cpp {SERVER_BUILD}",
        model=gguf.id,
        architecture=gguf.architecture,
        card="host",
        source="a server's log, printed to 0.01 MiB",
    )
    refused = refusal_of(context)
    if case["exit"] or refused:
        is_alike = bool(case["exit"]) == bool(refused)
        verdict = Verdict.REFUSED_ALIKE if is_alike else Verdict.WRONG
        return _with(row, (Check("outcome", None, None, verdict, refused or ""),))
    found, reason = _computed(gguf, context, placement, case["flags"])
    printed = case["printed"]
    pairs = (
        ("weights", memory.host_weights_bytes(gguf, placement), printed["model"][:1], ""),
        ("kv", allocated_kv_bytes(gguf, context, placement, HOST), printed["KV"], ""),
        ("compute", found.host, printed["compute"], reason),
        ("output", output_bytes(gguf, context), printed["output"], ""),
    )
    return _with(
        row,
        tuple(
            _printed(f"{part} MiB of host", planned / MIB, sum(each["mib"] for each in said), why)
            for part, planned, said, why in pairs
        ),
    )


def _printed(what: str, planned: float, reported: float, reason: str) -> Check:
    if abs(planned - reported) <= PRINTED_MIB * 2:
        return Check(what, round(planned, 2), reported, Verdict.EQUAL)
    is_over = planned < reported
    is_near = planned <= reported * (1 + WITHIN)
    verdict = Verdict.OVER if is_over else Verdict.WITHIN if is_near else Verdict.UNDER
    return Check(what, planned, reported, verdict, reason)


def _with(row: Row, checks: tuple[Check, ...]) -> Row:
    return Row(**{**row.__dict__, "checks": checks})
