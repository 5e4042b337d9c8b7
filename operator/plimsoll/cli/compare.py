"""On which cards of the catalogue does a pool fit, and which holds most?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.catalog.gpus import find_gpu, gpu_types
from plimsoll.cli.answers import Answer
from plimsoll.cli.inputs import check_pool, read_cases, with_calibration, with_lengths
from plimsoll.cli.offline import Case, answer, catalogue_inventory, on_card
from plimsoll.cli.text import Column, Page, Tone, table
from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuFacts
from plimsoll.plan.offload import MOST_SLOTS_UNASKED
from plimsoll.plan.paged_ask import most_sequences
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.units import GIB, counted

_COLUMNS: Final = (
    Column("GPU type"),
    Column("GiB", right=True),
    Column("cards", right=True),
    Column("fits"),
    Column("length", right=True),
    Column("at once", right=True),
    Column("KV tokens", right=True),
    Column("binding limit"),
)


class Contest(NamedTuple):
    """One pool on every card, best first."""

    title: str
    """The deployment, and the pool where the user wrote pools."""
    answers: tuple[Answer, ...]
    """The plans by KV tokens, most first, then the refusals by size of the card."""


def compare(arguments: argparse.Namespace) -> tuple[Contest, ...]:
    """Every pool on every card of the catalogue whose memory is known. Raises BadInputError."""
    cases = with_lengths(read_cases(arguments.filename), arguments)
    cases = with_calibration(cases, arguments)
    check_pool(cases, arguments.pool)
    cards = catalogue_cards()
    return tuple(contest for case in cases for contest in _contests(case, cards, arguments.pool))


def _contests(case: Case, cards: Sequence[GpuFacts], pool: str | None) -> Iterator[Contest]:
    answers = [
        found
        for card in cards
        for found in answer(
            on_card(case, card.product),
            catalogue_inventory(case.deployment, card.product),
            pool=pool,
        )
    ]
    size = {card.product: card.total_bytes for card in cards}

    def place(found: Answer) -> tuple[bool, int, str]:
        if isinstance(found.outcome, Plan):
            return (False, -found.outcome.kv.pool_tokens, found.gpu)
        return (True, -size.get(found.gpu, 0), found.gpu)

    answers.sort(key=place)
    if not case.deployment.spec.pools:  # Plimsoll names these pools after their cards
        yield Contest(case.title, tuple(answers))
        return
    for each in case.deployment.spec.pools:
        if own := tuple(found for found in answers if found.pool == each.name):
            yield Contest(f"{case.title}, pool {each.name}", own)


def catalogue_cards() -> tuple[GpuFacts, ...]:
    """Every whole card of the catalogue whose memory is known, by product; each product once."""
    found = {card.product: card for row in gpu_types() if (card := find_gpu(row.key))}
    return tuple(found[product] for product in sorted(found))


def comparison(contests: Sequence[Contest], *, page: Page) -> str:
    """One table for each pool. Ends with a newline."""
    return "\n\n".join("\n".join(_block(contest, page=page)) for contest in contests) + "\n"


def _block(contest: Contest, *, page: Page) -> list[str]:
    answers = contest.answers
    fit = sum(not found.is_refused for found in answers)
    return [
        page.ink(f"{contest.title}: {answers[0].model}", Tone.TITLE),
        "",
        *table(_COLUMNS, [_row(found) for found in answers], page=page),
        "",
        f"{counted(len(answers), 'GPU type')}: {fit} {'fits' if fit == 1 else 'fit'}",
    ]


def _row(found: Answer) -> list[str]:
    request = found.request
    gib = f"{request.gpu.total_bytes / GIB:,.1f}" if request else ""
    cards = str(request.cards) if request else ""
    match found.outcome:
        case Plan() as plan:
            return [
                found.gpu,
                gib,
                cards,
                "yes",
                f"{plan.max_model_len:,}",
                f"{plan.concurrency.max_num_seqs:,}",
                f"{plan.kv.pool_tokens:,}",
                _binds(plan, request),
            ]
        case Refusal() as refusal:
            return [found.gpu, gib, cards, "no", "-", "-", "-", refusal.reason.value]


def _binds(plan: Plan, request: PlanRequest | None) -> str:
    """What keeps the number of sequences from being larger, in a few words."""
    at_once = plan.concurrency.max_num_seqs
    if plan.gpu_layers is not None and plan.gpu_layers != plan.layers:
        return f"{plan.gpu_layers} of {plan.layers} layers fit"
    if request is not None and request.overrides.max_num_seqs is not None:
        return "your maxNumSeqs"
    if request is not None and request.concurrency is not None:
        return "limits.concurrency"
    if request is not None and plan.engine is EngineName.VLLM:
        if at_once >= most_sequences(request.gpu):
            return "the engine's usual limit"
    elif at_once >= MOST_SLOTS_UNASKED:
        return "slots"
    return "KV cache"
