"""How does advice read on a screen: verdict, ledger, line by line, and what matters?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plimsoll.api.advise_records import (
    Advice,
    AdviceVerdict,
    Change,
    Finding,
    Level,
    SettingRow,
)
from plimsoll.cli.card import LOOKS
from plimsoll.cli.report import ENGINES, LABEL_WIDTH
from plimsoll.cli.text import Column, Page, Tone, bullets, paragraph, table
from plimsoll.engines.base import ByteOwner
from plimsoll.plan.records import Plan, Refusal
from plimsoll.units import GIB, counted, gib

_SETTINGS: Final = (
    Column("flag"),
    Column("now"),
    Column("written"),
    Column("Plimsoll"),
    Column("because"),
)
_LEDGER: Final = (
    Column("owner"),
    Column("now GiB", right=True),
    Column("pinned GiB", right=True),
    Column("from"),
)
_HEADINGS: Final = {
    Level.MATTERS: ("This matters", Tone.BAD),
    Level.ADVICE: ("Advice", Tone.TITLE),
    Level.UNKNOWN: ("Not known", Tone.TITLE),
}
_MARKS: Final = {Change.NONE: " ", Change.WRITTEN: "+", Change.OTHER: "*"}
_VERDICTS: Final = {
    AdviceVerdict.FITS: ("The settings as they are fit", Tone.GOOD),
    AdviceVerdict.WOULD_NOT_FIT: ("The settings as they are do not fit", Tone.BAD),
    AdviceVerdict.UNKNOWN: ("Whether the settings as they are fit cannot be told", Tone.TITLE),
}


def report(everything: Sequence[Advice], *, page: Page) -> str:
    """One block for each workload and a last line that sums them up. Ends with a newline."""
    blocks = ["\n".join(_block(each, page=page)) for each in everything]
    return "\n\n".join([*blocks, _summary(everything, page=page)]) + "\n"


def _summary(everything: Sequence[Advice], *, page: Page) -> str:
    bad = sum(each.matters for each in everything)
    words = f"{counted(len(everything), 'workload')}: "
    if not bad:
        return words + page.ink("nothing that matters was found", Tone.GOOD)
    return words + page.ink(f"{bad} with something that matters", Tone.BAD)


def _block(each: Advice, *, page: Page) -> list[str]:
    lines = [page.ink(_title(each), Tone.TITLE), *_facts(each, page=page), ""]
    if each.engine is None:
        return [*lines, *_findings(each, page=page)]
    words, tone = _VERDICTS[each.verdict]
    lines += ["  " + page.ink(words, tone), *_memory(each, page=page)]
    if isinstance(each.now, Plan) or isinstance(each.ours, Plan):
        lines += [
            "",
            _heading("Every byte of one card", page=page),
            *table(_LEDGER, _ledger(each), page=page),
        ]
    if each.settings:
        rows = [_row(row) for row in each.settings]
        lines += [
            "",
            _heading("Line by line (* another value, + the same, written down)", page=page),
            *table(_SETTINGS, rows, page=page),
        ]
    return [*lines, *_findings(each, page=page)]


def _title(each: Advice) -> str:
    by = f", made by {each.made_by}" if each.made_by else ""
    return f"{each.object}, container {each.container or 'without a name'}{by}"


def _facts(each: Advice, *, page: Page) -> list[str]:
    model = each.model.id or "not known"
    told = f" (by {each.model.told_by})" if each.model.told_by else ""
    quantization = f" as {each.model.quantization}" if each.model.quantization else ""
    card = each.card.product or "not known"
    count = "" if each.card.count is None else f" x {each.card.count}"
    by = f" (by {each.card.told_by})" if each.card.told_by else ""
    said = [("image", each.image or "none written")]
    if each.engine is not None:
        release = each.release or "of unknown release"
        said.append(("engine", f"{ENGINES[each.engine]} {release}, started by {each.started_by}"))
        said.append(("model", f"{model}{quantization}{told}"))
    said += [("card", f"{card}{count}{by}"), ("replicas", str(each.replicas))]
    return [line for label, words in said for line in _line(label, words, page=page)]


def _memory(each: Advice, *, page: Page) -> list[str]:
    now, ours = each.now, each.ours
    lines: list[str] = []
    if isinstance(now, Plan):
        lines += _line("now", _holds(now), page=page)
        margin = now.line(ByteOwner.HEADROOM)
        lines += _line("margin", f"{gib(margin)} of each card stay free; {_spare(now)}", page=page)
    elif isinstance(now, Refusal):
        lines += _line("now", f"{now.reason.value}: {now.message}", page=page)
    if isinstance(ours, Plan):
        lines += _line("Plimsoll", f"{_holds(ours)}. {ours.explanation}", page=page)
    elif isinstance(ours, Refusal):
        lines += _line("Plimsoll", f"refuses, {ours.reason.value}: {ours.sentence()}", page=page)
    return lines


def _holds(plan: Plan) -> str:
    at_once = plan.concurrency
    expected = (
        ""
        if at_once.expected is None
        else f", {at_once.expected:,} expected for the lengths counted"
    )
    return (
        f"{counted(at_once.max_num_seqs, 'sequence')} at once of up to {plan.max_model_len:,} tokens; the pool of "
        f"{plan.kv.pool_tokens:,} tokens holds {at_once.worst_case:,} of that length{expected}"
    )


def _spare(plan: Plan) -> str:
    times = plan.kv.pool_tokens / plan.max_model_len
    return f"the pool is {times:.1f} times the longest request"


def _ledger(each: Advice) -> list[list[str]]:
    now = each.now if isinstance(each.now, Plan) else None
    ours = each.ours if isinstance(each.ours, Plan) else None
    rows = []
    for owner in ByteOwner:
        lines = [
            line
            for plan in (now, ours)
            if plan is not None
            for line in plan.ledger
            if line.owner is owner
        ]
        if lines:
            rows.append(
                [LOOKS[owner].words, _amount(now, owner), _amount(ours, owner), lines[0].source]
            )
    whole = [plan for plan in (now, ours) if plan is not None]
    sums = ["-" if plan is None else f"{plan.card_bytes / GIB:,.2f}" for plan in (now, ours)]
    return [*rows, ["whole card", *sums, whole[0].gpu_product]]


def _amount(plan: Plan | None, owner: ByteOwner) -> str:
    return "-" if plan is None else f"{plan.line(owner) / GIB:,.2f}"


def _row(row: SettingRow) -> list[str]:
    mark = _MARKS[row.change]
    return [
        f"{mark} {row.flag}",
        "-" if row.now is None else _short(row.now),
        "-" if row.written is None else "yes",
        "-" if row.planned is None else _short(row.planned),
        row.why,
    ]


def _short(value: str) -> str:
    return value if len(value) <= 24 else f"{value[:21]}..."


def _findings(each: Advice, *, page: Page) -> list[str]:
    lines: list[str] = []
    for level, (heading, tone) in _HEADINGS.items():
        found = [_said(one) for one in each.findings if one.level is level]
        if found:
            lines += ["", "  " + page.ink(heading, tone), *bullets(found, page=page)]
    return lines[1:] if each.engine is None else lines


def _said(finding: Finding) -> str:
    return f"{finding.about}: {finding.message}"


def _heading(words: str, *, page: Page) -> str:
    return "  " + page.ink(words, Tone.TITLE)


def _line(label: str, words: str, *, page: Page) -> list[str]:
    return paragraph(words, page=page, hanging=LABEL_WIDTH, lead=label.ljust(LABEL_WIDTH))
