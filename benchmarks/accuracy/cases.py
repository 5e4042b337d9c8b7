"""Which cases are compared, and what was each peer asked about them?

Four files, each with a module that plans its rows; their figures are matched with the file's own rows, so
that peers get the same inputs. Any file in those formats will do.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.named import config_named
from benchmarks.accuracy.peers import PEERS, gguf_parser, probe
from benchmarks.accuracy.peers.peer import Figure, Quantity, Question, Silent
from benchmarks.accuracy.peers.probe import asked_of_probe
from benchmarks.accuracy.row import Check, Row

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "tests" / "data"
GIB: Final = 1 << 30

BY_PLACE: Final = "row "
"""Rows without an identity of their own are known by their place in the file."""

Raw = Mapping[str, Any]
Asks = Callable[[Quantity, Raw, float | None], Question | None]
"""From what is compared, the file's row and the engine's figure; None where a peer has nothing to plan."""


KINDS: Final[tuple[tuple[str, Quantity | None], ...]] = (
    (r"step in utilization", None),
    (r"start|outcome|refus|verdict", Quantity.STARTS),
    (r"bytes (?:per|of one|of a) (?:full )?request|request bytes", Quantity.REQUEST),
    (r"concurren", Quantity.CONCURRENCY),
    (r"tokens", Quantity.TOKENS),
    (r"pool bytes|kv pool|kv memory", Quantity.POOL),
)
"""Words of a check's `what`, and what they mean to a peer; the first that is found."""


def quantity_of(what: str) -> Quantity | None:
    """What a check of a vLLM case is, for peers."""
    return next((kind for words, kind in KINDS if re.search(words, what, re.IGNORECASE)), None)


class CasesError(Exception):
    """A file or a module that the report needs is not there or of another form; says which."""


@dataclass(frozen=True)
class Compared:
    """One figure of one case: ours, the engine's, and what the peers say."""

    row: Row
    check: Check
    quantity: Quantity | None
    """None where no peer has anything like it."""
    peers: Mapping[str, Figure]
    printed: float = 0.0
    """Relative; what the rounding of printed inputs and of the figure itself may make of an exact plan."""


@dataclass(frozen=True)
class Source:
    """One file with cases."""

    option: str
    """As on the command line, without dashes."""
    words: str
    module: str
    function: str
    default: Path
    raws: Callable[[Any], Iterable[tuple[str, Raw]]]
    """From the file's JSON: identity and row, where rows have an identity."""
    asks: Callable[[Path], Asks]
    quantities: tuple[Quantity, ...] = ()
    """What peers are asked about its rows."""
    quantity_of: Callable[[str], Quantity | None] = quantity_of
    """What a check's words are to peers."""

    def read(self, path: Path) -> tuple[tuple[str, Raw], ...]:
        """The file's own rows."""
        try:
            return tuple(self.raws(json.loads(path.read_text(encoding="utf-8"))))
        except OSError as error:
            raise CasesError(f"--{self.option}: {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise CasesError(f"--{self.option}: {path} has another format: {error!r}") from error

    def rows(self, path: Path) -> tuple[Row, ...]:
        """As planned by Plimsoll."""
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            raise CasesError(f"--{self.option}: {error.name} is missing") from error
        planned: Iterable[Row] = getattr(module, self.function)(path)
        return tuple(planned)


def compared(source: Source, path: Path) -> tuple[Compared, ...]:
    """Every figure of every case of a file; a row without figures stands as it is, once."""
    raws = dict(source.read(path))
    asks = source.asks(path)
    found: list[Compared] = []
    for at, row in enumerate(source.rows(path)):
        raw = raws.get(row.id) or _in_place(raws.get(f"{BY_PLACE}{at}"), row)
        for check in row.checks:
            quantity = source.quantity_of(check.what)
            said: dict[str, Figure] = {}
            if quantity in source.quantities and raw is not None:
                question = asks(quantity, raw, check.reported)
                said = {peer.name: peer.says(question) for peer in PEERS} if question else {}
            found.append(Compared(row, check, quantity, said, _printed(quantity, raw, check)))
        if not row.checks:
            found.append(Compared(row, Check("", None, None, row.verdict, row.reason), None, {}))
    return tuple(found)


def _in_place(raw: Raw | None, row: Row) -> Raw | None:
    """The file's row of that place, if it is of the same model."""
    return raw if raw is not None and raw["model"].startswith(row.model) else None


def questions(source: Source, path: Path) -> tuple[Question, ...]:
    """All that peers could be asked about a file, planned by us or not."""
    asks = source.asks(path)
    asked = (
        asks(quantity, raw, None) for _, raw in source.read(path) for quantity in source.quantities
    )
    return tuple(question for question in asked if question is not None)


def with_peers(figures: Sequence[Compared]) -> tuple[Row, ...]:
    """The rows, each with what peers say of its first figure."""
    rows: dict[int, Row] = {}
    for each in figures:
        said = {name: says for name, says in each.peers.items() if not isinstance(says, Silent)}
        rows.setdefault(id(each.row), replace(each.row, peers={**each.row.peers, **said}))
    return tuple(rows.values())


def _oracle_asks(path: Path) -> Asks:
    return partial(_asked_of_oracle, path.parent)


def _asked_of_oracle(
    folder: Path, quantity: Quantity, raw: Raw, reported: float | None
) -> Question:
    config = folder / raw["config"]
    return Question(
        quantity=quantity,
        model=raw["model"],
        architecture=raw["architecture"][0],
        config=json.loads(config.read_text(encoding="utf-8")) if config.is_file() else None,
        card=raw["device"],
        tp=raw["tp"],
        pp=raw["pp"],
        dcp=raw["dcp"],
        dtype=raw.get("dtype"),
        kv_dtype=raw["kv_cache_dtype"],
        kv_dtype_in_use=raw.get("kv_cache_dtype_resolved"),
        hybrid_manager=raw.get("hybrid_kv_cache_manager", True),
        max_model_len=raw["max_model_len"],
        max_num_batched_tokens=raw["max_num_batched_tokens"],
        max_num_seqs=raw["max_num_seqs"],
        kv_memory_bytes=next(
            (
                given["available_bytes"]
                for given in raw["capacity"]
                if reported is not None and reported == given.get("max_concurrency")
            ),
            None,
        ),
    )


def _readings_ask(_: Path) -> Asks:
    return _asked_of_reading


def _asked_of_reading(quantity: Quantity, raw: Raw, _: float | None) -> Question | None:
    said = raw["reported"]
    if quantity is Quantity.CONCURRENCY and said.get("kv_tokens"):
        return None  # printed tokens over the length, whoever divides
    budget, utilization = said.get("budget_gib"), raw.get("gpu_memory_utilization")
    total = raw.get("gpu_memory_gib_total")
    if budget and total:
        utilization = budget / total
    return Question(
        quantity=quantity,
        model=raw.get("model") or "",
        architecture=raw.get("hf_architecture") or "",
        config=config_named(raw.get("model") or ""),
        card=raw.get("gpu") or "",
        tp=raw.get("tp") or 1,
        pp=raw.get("pp") or 1,
        dtype=raw.get("dtype"),
        kv_dtype=raw.get("kv_dtype") or "auto",
        max_model_len=raw.get("max_model_len"),
        max_num_batched_tokens=raw.get("max_num_batched_tokens"),
        max_num_seqs=raw.get("max_num_seqs"),
        card_bytes=_bytes(total),
        utilization=utilization,
        weights_bytes_per_card=_bytes(said.get("weights_gib")),
        kv_memory_bytes=_bytes(said.get("available_kv_gib")),
    )


def _printed(quantity: Quantity | None, raw: Raw | None, check: Check) -> float:
    """Half of the last digit of the KV memory, and of a concurrency, where a report prints them."""
    memory = (raw or {}).get("reported", {}).get("available_kv_gib")
    if quantity not in (Quantity.TOKENS, Quantity.CONCURRENCY) or not memory or memory < 0:
        return 0.0
    digits = len(str(memory).partition(".")[2])
    of_memory: float = 0.5 * 10.0 ** -max(digits, 2) / memory
    if quantity is Quantity.TOKENS or not check.reported:
        return of_memory
    return of_memory + 0.005 / check.reported


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else gib * GIB


def _probes_ask(_: Path) -> Asks:
    return asked_of_probe


def _nothing_asked(_: Path) -> Asks:
    return lambda *_: None


def _without_rows(_: Any) -> tuple[tuple[str, Raw], ...]:
    return ()


SOURCES: Final = (
    Source(
        "vllm-oracle",
        "vLLM's own KV planning code",
        "benchmarks.accuracy.vllm_oracle",
        "rows",
        DATA / "vllm_kv.json",
        lambda read: ((row["id"], row) for row in read["rows"]),
        _oracle_asks,
        (Quantity.REQUEST, Quantity.CONCURRENCY),
    ),
    Source(
        "readings",
        "start-up readings of vLLM on real cards",
        "benchmarks.accuracy.vllm_readings",
        "rows",
        DATA / "vllm_readings.json",
        lambda read: ((row["id"], row) for row in read["readings"]),
        _readings_ask,
        (
            Quantity.POOL,
            Quantity.TOKENS,
            Quantity.CONCURRENCY,
            Quantity.REQUEST,
            Quantity.STARTS,
        ),
    ),
    Source(
        "llamacpp-oracle",
        "llama.cpp's own loader without allocation",
        "benchmarks.accuracy.llamacpp",
        "oracle_rows",
        DATA / "llamacpp_buffers.json",
        lambda read: ((f"{BY_PLACE}{at}", row) for at, row in enumerate(read["probe_cases"])),
        _probes_ask,
        tuple(gguf_parser.PARTS),
        probe.quantity_of,
    ),
    Source(
        "llamacpp-readings",
        "load-time readings of llama.cpp on real cards",
        "benchmarks.accuracy.llamacpp",
        "reading_rows",
        DATA / "llamacpp_readings.json",
        _without_rows,
        _nothing_asked,
    ),
)
