"""Which of the ways to run a model on one GPU type is the best, and what is given up with it?

The candidates are questions that differ in engine, cards of one worker and, where nobody set it, length.
Asked for a number of sequences, the fewest cards that hold them are best. Else the most tokens of
concurrency for each card are: the cards of one large worker could as well carry several small ones.

What memory arithmetic cannot weigh is not chosen by itself: llama.cpp's fewer bits where vLLM fits, layers
left in host memory where all can be on cards, fp8 in the KV cache, a length below what the traffic needs.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.engines.base import EngineName
from plimsoll.plan import offload
from plimsoll.plan.length import DEFAULT_LENGTH_TOKENS
from plimsoll.plan.paged import gauge_vllm
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest, Reason, Refusal
from plimsoll.units import counted

WORTH_MORE_CARDS: Final = 1.5
"""A worker is spread over more cards when each card then holds half as many tokens again. Less does not pay
for two all-reduces in every layer, and a worker of many cards is a larger thing to lose. Our choice."""
SHORTEST_TOKENS: Final = 2048
"""Without traffic or a length, the usual one is halved until it fits, but not below this."""
_ENGINES: Final = {EngineName.VLLM: "vLLM", EngineName.LLAMA_CPP: "llama.cpp"}


class Candidate(NamedTuple):
    """One way to run it, as far as it was looked at."""

    at: int
    """Its place among the questions that were given."""
    request: PlanRequest
    """The question, its length halved where that was needed to fit."""
    room: int
    """Workers of this shape for which there are cards."""
    tokens: int
    """Tokens of concurrency of one worker."""
    sequences: int
    """Sequences of the whole length that it holds at once."""
    is_partial: bool = False
    """Whether layers stay in host memory."""
    is_shortened: bool = False
    """Whether its length was halved."""
    plan: Plan | None = None
    """Its plan, where that was made to gauge it."""

    @property
    def tokens_per_card(self) -> float:
        """What one card of it carries."""
        return self.tokens / self.request.cards

    @property
    def words(self) -> str:
        """ "4 cards with vLLM" """
        engine = _ENGINES[self.request.engine]
        return f"{counted(self.request.cards, 'card')} with {engine}"


class Choice(NamedTuple):
    """The best way, and what else there was."""

    best: Candidate
    """What was chosen."""
    request: PlanRequest
    """Its question, with what was given up among the notes."""
    plan: Plan
    """The answer."""
    others: tuple[Candidate, ...]
    """What fits as well with the same engine, in the order in which the questions were given."""
    gave_up: tuple[str, ...]
    """What the others would give, and why they were not chosen."""


def choose(
    requests: Sequence[PlanRequest], *, rooms: Sequence[int] = (), wanted: int = 1
) -> Choice | Refusal:
    """The best of several questions about one model on one GPU type; engines in order of preference.

    `rooms` says for each how many such workers there are cards for, and shapes that have room for the
    `wanted` workers go before those that do not. Engines behind one that fits are not looked at. Where
    none fits, the refusal of the first. Raises ValueError when there is no question.
    """
    if not requests:
        raise ValueError("there is nothing to choose from: give at least one question")
    ways = list(enumerate(zip(requests, rooms or [wanted] * len(requests), strict=True)))
    engines = list(dict.fromkeys(request.engine for request in requests))
    refusals: list[Refusal] = []
    for place, engine in enumerate(engines):
        looked = [
            (request, _gauged(request, at=at, room=room))
            for at, (request, room) in ways
            if request.engine is engine
        ]
        found = _among(looked, wanted, engines[place + 1 :])
        if isinstance(found, Choice):
            return found
        refusals.append(found)
    again = plan(requests[0])  # gauging does not look for what would fit instead
    return again if isinstance(again, Refusal) else refusals[0]


def _among(
    looked: Sequence[tuple[PlanRequest, Candidate | Refusal]],
    wanted: int,
    behind: Sequence[EngineName],
) -> Choice | Refusal:
    """The best with one engine; `behind` it are those that were not looked at."""
    fitting = [each for _, each in looked if isinstance(each, Candidate)]
    refused = [(request, each) for request, each in looked if isinstance(each, Refusal)]
    left = list(fitting)
    while left:
        best = _best(left, wanted)
        others = tuple(each for each in fitting if each is not best)
        gave_up = tuple(_gave_up(best, others, [request for request, _ in refused], behind))
        request = best.request._replace(notes=(*best.request.notes, *gave_up))
        outcome = plan(request) if best.plan is None else _noted(best.plan, request.notes)
        if isinstance(outcome, Plan):
            return Choice(best, request, outcome, others, gave_up)
        left.remove(best)  # holds one sequence, and yet not what was asked for
        refused.append((best.request, outcome))
    return refused[0][1]


def _noted(found: Plan, notes: tuple[str, ...]) -> Plan:
    return found.model_copy(update={"notes": (*found.notes, *notes)})


def _best(candidates: Sequence[Candidate], wanted: int) -> Candidate:
    """All layers on the card first, then room for the workers, then what a card carries."""
    whole = [each for each in candidates if not each.is_partial] or list(candidates)
    most = min(wanted, max(each.room for each in whole))
    roomy = sorted(
        (each for each in whole if each.room >= most), key=lambda each: each.request.cards
    )
    best = roomy[0]
    if best.request.concurrency is not None:
        return best
    for each in roomy[1:]:
        if each.tokens_per_card >= WORTH_MORE_CARDS * best.tokens_per_card:
            best = each
    return best


def _gauged(request: PlanRequest, *, at: int, room: int) -> Candidate | Refusal:
    """What it holds, at the first length that fits."""
    first = found = _gauge(request, at=at, room=room)
    if not isinstance(found, Refusal) or not _length_is_ours(request):
        return found
    length = DEFAULT_LENGTH_TOKENS
    while (
        isinstance(found, Refusal)
        and found.reason is Reason.KV_BUDGET_EXCEEDED
        and length > SHORTEST_TOKENS
    ):
        length //= 2
        found = _gauge(request._replace(max_model_len=length), at=at, room=room)
    return first if isinstance(found, Refusal) else found._replace(is_shortened=True)


def _length_is_ours(request: PlanRequest) -> bool:
    return (
        request.max_model_len is None
        and request.overrides.max_model_len is None
        and not request.lanes
    )


def _gauge(request: PlanRequest, *, at: int, room: int) -> Candidate | Refusal:
    if request.engine is EngineName.VLLM:
        gauge = gauge_vllm(request)
        if isinstance(gauge, Refusal):
            return gauge
        return Candidate(at, request, room, gauge.tokens, gauge.sequences)
    found = offload.fit(request)
    if isinstance(found, Refusal):
        return found
    return Candidate(
        at,
        request,
        room,
        tokens=found.kv.pool_tokens,
        sequences=found.concurrency.worst_case,
        is_partial=found.gpu_layers != found.layers,
        plan=found,
    )


def _gave_up(
    best: Candidate,
    others: Sequence[Candidate],
    refused: Sequence[PlanRequest],
    behind: Sequence[EngineName],
) -> Iterator[str]:
    """One sentence for each thing that another choice would give."""
    product = best.request.gpu.product
    if best.is_shortened:
        yield (
            f"no length was asked for: {best.request.max_model_len:,} tokens fit, the usual "
            f"{DEFAULT_LENGTH_TOKENS:,} do not"
        )
    most = max((each.cards for each in refused if each.cards < best.request.cards), default=0)
    if most or others or behind:
        why = f"; {counted(most, 'card')} of {product} cannot hold it" if most else ""
        yield f"chosen: {best.words}{why}"
    for each in others:
        yield _instead(best, each)
    for engine in behind:
        yield f"not chosen: {_ENGINES[engine]}, whose weights have fewer bits"


def _instead(best: Candidate, other: Candidate) -> str:
    more = other.tokens_per_card / best.tokens_per_card
    holds = f"{counted(other.sequences, 'sequence')} in {other.tokens:,} tokens"
    if other.is_partial and not best.is_partial:
        return f"not chosen: {other.words}, {holds}: some layers would stay in host memory"
    if best.request.concurrency is not None:
        return f"not chosen: {other.words}: {best.request.concurrency} sequences fit on fewer"
    if other.room < best.room and more >= WORTH_MORE_CARDS:
        return f"not chosen: {other.words}, {holds}: {_room(other.room)}"
    if other.request.cards > best.request.cards:
        return (
            f"not chosen: {other.words}, {holds}: {more:.1f} times the tokens per card, and "
            f"{WORTH_MORE_CARDS:g} times would be worth it"
        )
    return f"not chosen: {other.words}, {holds}: {more:.1f} times the tokens per card"


def _room(workers: int) -> str:
    return f"there are cards for {counted(workers, 'such worker')}"
