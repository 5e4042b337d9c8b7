"""How near are the plans, per engine, figure, card and architecture, and how near are the peers?"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.accuracy.cases import Compared
from benchmarks.accuracy.peers import PEERS
from benchmarks.accuracy.peers.peer import PRINTED, Quantity, Silent, is_over_promise
from benchmarks.accuracy.row import MET, Verdict

AT: Final = r" at [\d.]+ [KMGT]iB$"
"""Where a figure was taken; it tells no kind apart."""
SHOWN: Final = 5e-6
"""Errors below it have no digit to show."""
HALF: Final = 0.5
"""Plimsoll's median error is to be at most this share of the best peer's on the same rows."""


@dataclass(frozen=True)
class Group:
    """Figures that have something in common."""

    name: str
    count: int
    met: int
    over_promises: int
    not_planned: int
    median_error: float | None
    """Of |planned / reported - 1|; None where no figure has both."""
    worst_error: float | None
    """With its sign."""
    worst_id: str


@dataclass(frozen=True)
class Against:
    """A peer and Plimsoll on the rows that both plan."""

    peer: str
    quantity: str
    count: int
    """Rows with a figure of the peer, of Plimsoll and of the engine."""
    silent: int
    """Rows of this quantity that the peer does not plan."""
    nearer: int
    """Rows on which the peer is nearer than Plimsoll."""
    median_error: float | None
    over_promises: int
    plimsoll_median_error: float | None
    plimsoll_over_promises: int


@dataclass(frozen=True)
class Target:
    """What was to be reached."""

    what: str
    reached: bool | None
    """None where nothing can be compared."""
    figures: str


@dataclass(frozen=True)
class Summary:
    """The whole of it."""

    engines: tuple[Group, ...]
    checks: tuple[Group, ...]
    cards: tuple[Group, ...]
    architectures: tuple[Group, ...]
    peers: tuple[Against, ...]
    targets: tuple[Target, ...]

    def as_dict(self) -> dict[str, Any]:
        """As `-o json` prints it."""
        return asdict(self)


def summary(figures: Sequence[Compared]) -> Summary:
    """From every figure of every case."""
    peers = tuple(against(figures))
    return Summary(
        engines=groups(figures, lambda each: each.row.engine),
        checks=groups(figures, check_name),
        cards=groups(figures, lambda each: each.row.card or "not stated"),
        architectures=groups(figures, lambda each: each.row.architecture or "not stated"),
        peers=peers,
        targets=(*targets(peers), *promises(figures)),
    )


def check_name(each: Compared) -> str:
    """The figure, told apart by engine."""
    engine = each.row.engine.split()[0] if each.row.engine else ""
    name = each.quantity.value if each.quantity else re.sub(AT, "", each.check.what)
    name = name or "nothing compared"
    return f"{engine}: {name}"


def groups(figures: Iterable[Compared], name_of: Callable[[Compared], str]) -> tuple[Group, ...]:
    """One group a name, in alphabetical order."""
    found: dict[str, list[Compared]] = {}
    for each in figures:
        found.setdefault(name_of(each), []).append(each)
    return tuple(_group(name, found[name]) for name in sorted(found, key=str.lower))


def _group(name: str, figures: Sequence[Compared]) -> Group:
    verdicts = Counter(each.check.verdict for each in figures)
    errors = [(each.check.error, each.row.id) for each in figures if each.check.error is not None]
    worst = max(errors, key=lambda error: (abs(error[0]), error[1]), default=(None, ""))
    return Group(
        name=name,
        count=len(figures),
        met=sum(verdicts[verdict] for verdict in MET),
        over_promises=verdicts[Verdict.OVER],
        not_planned=verdicts[Verdict.NOT_PLANNED],
        median_error=_median(abs(error) for error, _ in errors),
        worst_error=worst[0],
        worst_id=worst[1],
    )


def against(figures: Sequence[Compared]) -> Iterable[Against]:
    """Each peer on each quantity that it plans at least once."""
    for quantity in Quantity:
        for peer in PEERS:
            asked = [
                each for each in figures if each.quantity is quantity and peer.name in each.peers
            ]
            pairs = [pair for each in asked if (pair := _pair(each, peer.name)) is not None]
            if not pairs:
                continue
            theirs = [_off(pair.says, pair) for pair in pairs]
            ours = [_off(pair.planned, pair) for pair in pairs]
            yield Against(
                peer=peer.name,
                quantity=quantity.value,
                count=len(pairs),
                silent=sum(isinstance(each.peers[peer.name], Silent) for each in asked),
                nearer=sum(a < b - PRINTED for a, b in zip(theirs, ours, strict=True)),
                median_error=_median(theirs),
                over_promises=sum(
                    is_over_promise(quantity, pair.says, pair.reported) for pair in pairs
                ),
                plimsoll_median_error=_median(ours),
                plimsoll_over_promises=sum(
                    is_over_promise(quantity, pair.planned, pair.reported) for pair in pairs
                ),
            )


@dataclass(frozen=True)
class _Pair:
    says: float
    planned: float
    reported: float
    printed: float


def _pair(each: Compared, peer: str) -> _Pair | None:
    """The peer's figure, ours and the engine's; None unless all three are there."""
    says = each.peers[peer]
    planned, reported = each.check.planned, each.check.reported
    if isinstance(says, Silent) or planned is None or reported is None:
        return None
    if reported <= 0 and each.quantity is not Quantity.STARTS:
        return None  # a pool below nothing has no relative error
    return _Pair(says, planned, reported, each.printed)


def _off(figure: float, pair: _Pair) -> float:
    """Relative; what the print's rounding explains is no error, and a wrong start is one whole."""
    if not pair.reported:
        return figure
    off = abs(figure / pair.reported - 1)
    return 0.0 if off <= pair.printed else off


def targets(peers: Sequence[Against]) -> Iterable[Target]:
    """At most half of the best peer's median, and no over-promise where a peer has one."""
    for quantity in Quantity:
        rows = [each for each in peers if each.quantity == quantity.value]
        if not rows or quantity is Quantity.STARTS:
            continue
        tightest = max(rows, key=_share)
        ours, theirs = tightest.plimsoll_median_error or 0.0, tightest.median_error or 0.0
        yield Target(
            what=f"{quantity.value}: median error at most half of any peer's on its rows",
            reached=all(_share(each) <= HALF for each in rows),
            figures=f"{percent(ours)} against {percent(theirs)} of {tightest.peer} "
            f"on {tightest.count} rows",
        )


def promises(figures: Sequence[Compared]) -> Iterable[Target]:
    """No over-promise of ours on the figures that a peer plans too, each counted once."""
    ours, theirs, count = 0, 0, 0
    for each in figures:
        pairs = [pair for name in each.peers if (pair := _pair(each, name)) is not None]
        if not pairs or each.quantity is None:
            continue
        count += 1
        ours += is_over_promise(each.quantity, pairs[0].planned, pairs[0].reported)
        theirs += any(is_over_promise(each.quantity, pair.says, pair.reported) for pair in pairs)
    if count:
        yield Target(
            what="no over-promise on the figures that a peer plans too",
            reached=ours == 0,
            figures=f"{ours} of {count}; a peer over-promises on {theirs}",
        )


def _share(each: Against) -> float:
    """Our median over the peer's; 0 where ours is exact."""
    ours, theirs = each.plimsoll_median_error or 0.0, each.median_error or 0.0
    if ours <= PRINTED:
        return 0.0
    return ours / theirs if theirs > PRINTED else float("inf")


def percent(error: float | None, *, signed: bool = False) -> str:
    """An error as people read it; `0` is exact."""
    if error is None:
        return "-"
    if abs(error) < PRINTED:
        return "0"
    if abs(error) < SHOWN:
        return "under 0.001 %"
    digits = 3 if abs(error) < 0.001 else 2 if abs(error) < 0.1 else 1
    return f"{100 * error:+.{digits}f} %" if signed else f"{100 * error:.{digits}f} %"


def _median(errors: Iterable[float]) -> float | None:
    found = list(errors)
    return statistics.median(found) if found else None
