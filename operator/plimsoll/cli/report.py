"""How does a plan read on a screen: every byte, every flag, and the sentence that explains it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plimsoll.cli.answers import Answer
from plimsoll.cli.card import LOOKS
from plimsoll.cli.text import Column, Page, Tone, bullets, paragraph, table
from plimsoll.engines.base import EngineName
from plimsoll.facts.source import Provenance
from plimsoll.plan.records import Plan, Refusal
from plimsoll.units import GIB, counted, gib

ENGINES: Final = {EngineName.VLLM: "vLLM", EngineName.LLAMA_CPP: "llama.cpp"}
"""The engines as their authors write them."""

_LEDGER: Final = (
    Column("owner"),
    Column("GiB", right=True),
    Column("of card", right=True),
    Column("known by"),
    Column("from"),
)
_FLAGS: Final = (Column("flag"), Column("because"))
_FACTS: Final = (Column("told by"), Column("known by"), Column("what"))
LABEL_WIDTH: Final = 13
"""Columns of the words at the left of a line: "model", "card", "lengths"."""


def report(answers: Sequence[Answer], *, page: Page) -> str:
    """All answers, one block each, and a last line that sums them up. Ends with a newline."""
    blocks = ["\n".join(_block(answer, page=page)) for answer in answers]
    return "\n\n".join([*blocks, summary(answers, page=page)]) + "\n"


def summary(answers: Sequence[Answer], *, page: Page) -> str:
    """ "3 pools: 2 fit, 1 is refused"."""
    refused = sum(answer.is_refused for answer in answers)
    fit = len(answers) - refused
    parts = []
    if fit:
        parts.append(page.ink(f"{fit} {'fits' if fit == 1 else 'fit'}", Tone.GOOD))
    if refused:
        parts.append(page.ink(f"{refused} {'is' if refused == 1 else 'are'} refused", Tone.BAD))
    return f"{counted(len(answers), 'pool')}: {', '.join(parts)}"


def _block(answer: Answer, *, page: Page) -> list[str]:
    match answer.outcome:
        case Plan() as plan:
            return _plan(answer, plan, page=page)
        case Refusal() as refusal:
            return _refusal(answer, refusal, page=page)


def _plan(answer: Answer, plan: Plan, *, page: Page) -> list[str]:
    facts = [[p.source.value, p.confidence.value, p.detail] for p in plan.provenance]
    return [
        _title(answer, page=page),
        _said("model", answer.model),
        _said("engine", f"{ENGINES[plan.engine]} {plan.release}"),
        _said("card", f"{plan.gpu_product} x {plan.cards}, {gib(plan.card_bytes)} each"),
        "",
        *paragraph(plan.explanation, page=page),
        "",
        _heading("Every byte of one card", page=page),
        *table(_LEDGER, _ledger(plan), page=page),
        "",
        _heading("Sequences and tokens", page=page),
        *_numbers(plan, page=page),
        "",
        _heading("Pinned flags", page=page),
        *table(_FLAGS, _flags(plan), page=page),
        *_section("Notes", bullets(plan.notes, page=page), page=page),
        *_section("Facts", table(_FACTS, facts, page=page) if facts else [], page=page),
    ]


def _refusal(answer: Answer, refusal: Refusal, *, page: Page) -> list[str]:
    request = answer.request
    lines = [_title(answer, page=page), _said("model", answer.model)]
    provenance: tuple[Provenance, ...] = ()
    if request is not None:
        release = f" {request.release}" if request.release else ""
        lines.append(_said("engine", ENGINES[request.engine] + release))
        gpu = request.gpu
        lines.append(_said("card", f"{gpu.product} x {request.cards}, {gib(gpu.total_bytes)} each"))
        provenance = (gpu.provenance, *_model_provenance(answer))
    elif answer.gpu:
        lines.append(_said("card", answer.gpu))
    offers = [f"{offer.sentence} ({offer.change}: {offer.value})" for offer in refusal.offers]
    facts = [[p.source.value, p.confidence.value, p.detail] for p in provenance]
    return [
        *lines,
        "",
        "  " + page.ink(f"Refused: {refusal.reason.value}", Tone.BAD),
        *paragraph(refusal.message, page=page),
        *_section("Would fit", bullets(offers, page=page), page=page),
        *_section("Facts", table(_FACTS, facts, page=page) if facts else [], page=page),
    ]


def _model_provenance(answer: Answer) -> tuple[Provenance, ...]:
    request = answer.request
    if request is None:
        return ()
    return tuple(facts.provenance for facts in (request.model, request.gguf) if facts is not None)


def _ledger(plan: Plan) -> list[list[str]]:
    rows = [
        [
            LOOKS[line.owner].words,
            f"{line.bytes / GIB:,.2f}",
            f"{100 * line.bytes / plan.card_bytes:.1f} %",
            line.confidence.value,
            line.source,
        ]
        for line in plan.ledger
    ]
    total = sum(line.bytes for line in plan.ledger)
    share = f"{100 * total / plan.card_bytes:.1f} %"
    return [*rows, ["whole card", f"{total / GIB:,.2f}", share, "", ""]]


def _flags(plan: Plan) -> list[list[str]]:
    rows = [
        [" ".join(flag.as_args()), f"override: {flag.reason}" if flag.override else flag.reason]
        for flag in plan.flags
    ]
    return rows + [[f"{pair.name}={pair.value}", "environment"] for pair in plan.env]


def _numbers(plan: Plan, *, page: Page) -> list[str]:
    kv, at_once = plan.kv, plan.concurrency
    pinned = f"{counted(at_once.max_num_seqs, 'sequence')} at once"
    worst = f"{counted(at_once.worst_case, 'sequence')} when all use their whole length"
    said = [
        ("pinned", f"{pinned}, up to {plan.max_model_len:,} tokens each"),
        ("worst case", worst),
    ]
    if at_once.expected is not None:
        said.append(
            ("expected", f"{counted(at_once.expected, 'sequence')} for the traffic as described")
        )
    if at_once.safe_mean_tokens is not None:
        said.append(
            (
                "safe mean",
                f"{at_once.max_num_seqs:,} at once all fit while they average no more than "
                f"{at_once.safe_mean_tokens:,} tokens",
            )
        )
    if at_once.mean_occupied_tokens is not None and at_once.p999_occupied_tokens is not None:
        mean, seldom = at_once.mean_occupied_tokens, at_once.p999_occupied_tokens
        said.append(
            (
                "occupied",
                f"{mean:,} tokens ({mean / kv.pool_tokens:.0%} of the pool) on average, at most "
                f"{seldom:,} ({seldom / kv.pool_tokens:.0%}) in all but one of a thousand moments",
            )
        )
    said.append(("guarantee", at_once.guarantee.value))
    blocks = f", in blocks of {kv.block_tokens} tokens" if kv.block_tokens else ""
    said.append(
        (
            "KV cache",
            f"{kv.pool_tokens:,} tokens in {gib(kv.pool_bytes_per_card)} of each card, "
            f"{kv.dtype}{blocks}",
        )
    )
    said.append(
        (
            "one token",
            f"{kv.bytes_per_token_per_card:,} B per card, "
            f"{kv.bytes_per_token_per_replica:,} B per worker",
        )
    )
    if plan.gpu_memory_utilization is not None:
        said.append(("utilization", f"{plan.gpu_memory_utilization:g} of the card"))
    if plan.gpu_layers is not None:
        of = f" of {plan.layers}" if plan.layers is not None else ""
        said.append(("on the card", f"{plan.gpu_layers}{of} layers"))
    said.append(("host memory", f"{gib(plan.host_memory_bytes)} per worker"))
    if plan.kv_offload is not None:
        kept = plan.kv_offload
        said.append(
            (
                "KV beside it",
                f"{gib(kept.host_bytes)}, at least {kept.tokens:,} tokens in host memory",
            )
        )
    return [line for label, words in said for line in _line(label, words, page=page)]


def _title(answer: Answer, *, page: Page) -> str:
    return page.ink(f"{answer.deployment}, pool {answer.pool}", Tone.TITLE)


def _heading(words: str, *, page: Page) -> str:
    return "  " + page.ink(words, Tone.TITLE)


def _section(heading: str, lines: list[str], *, page: Page) -> list[str]:
    return ["", _heading(heading, page=page), *lines] if lines else []


def _said(label: str, words: str) -> str:
    return f"  {label.ljust(LABEL_WIDTH)}{words}"


def _line(label: str, words: str, *, page: Page) -> list[str]:
    return paragraph(words, page=page, hanging=LABEL_WIDTH, lead=label.ljust(LABEL_WIDTH))
