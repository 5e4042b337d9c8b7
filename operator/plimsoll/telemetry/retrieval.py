"""How is a retrieval probe carried out on a server: contexts made to measure, numbers asked for one by one?

All questions of a context follow each other, so that an engine with a prefix cache reads it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.diagnose.retrieval import needles, prompt, register, sheet_of
from plimsoll.facts.retrieval import Answers, Sheet
from plimsoll.telemetry.openai import AskError, Server

ANSWER_TOKENS_PER_DIGIT: Final = 2
ANSWER_TOKENS_BESIDE: Final = 4
CHAT_ANSWER_TOKENS: Final = 64
"""In a chat a model may say a sentence around the number."""
CHAT_FRAME_TOKENS: Final = 64
"""What a chat template puts around a message, as a bound: a `/tokenize` of the plain text does not count it."""
_FIRST_GUESS: Final = 40
"""Sentences by which tokens per sentence are first measured."""
_ROUNDS: Final = 4
_AIM: Final = 0.975
"""Part of the asked length that is aimed at: contexts of equally many sentences differ by a little, and none may
be longer than asked."""
_NEAR: Final = 0.01
"""Nearer than this to the aim, in parts of the length, is near enough."""

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


class Asked(NamedTuple):
    """What is to be asked."""

    lengths: tuple[int, ...]
    """Of each context, in tokens."""
    depths: tuple[float, ...]
    digits: int
    seed: int


def answer_tokens(digits: int, *, is_chat: bool) -> int:
    """The most tokens of an answer."""
    return (
        CHAT_ANSWER_TOKENS if is_chat else ANSWER_TOKENS_PER_DIGIT * digits + ANSWER_TOKENS_BESIDE
    )


async def made_to_measure(server: Server, asked: Asked) -> Sheet:
    """The sheet whose contexts, with question and answer, have the asked lengths in the server's tokens.

    Raises AskError where the server does not count, or a length is too short for the numbers.
    """
    sentences: dict[int, int] = {}
    for length in sorted(set(asked.lengths)):
        sentences[length] = await _sentences(server, asked, length)
    counts = [sentences[length] for length in asked.lengths]
    return sheet_of(
        asked.lengths, counts, depths=asked.depths, seed=asked.seed, digits=asked.digits
    )


async def _sentences(server: Server, asked: Asked, length: int) -> int:
    """Sentences of filling with which the first context of a length is just no longer than it."""
    frame = CHAT_FRAME_TOKENS if server.is_chat else 0
    room = length - answer_tokens(asked.digits, is_chat=server.is_chat) - frame
    at = asked.lengths.index(length)

    async def tokens(count: int) -> int:
        others = [count] * len(asked.lengths)
        sheet = sheet_of(
            asked.lengths, others, depths=asked.depths, seed=asked.seed, digits=asked.digits
        )
        longest = max((needle.name for needle in needles(sheet, at)), key=len)
        text = prompt(register(sheet, at), longest, is_chat=server.is_chat)
        found = await server.count(text)
        if found is None:
            raise AskError(
                f"{server.root} counts no tokens, neither by /tokenize nor in usage.prompt_tokens"
            )
        return found

    few = await tokens(1)
    if few >= room:
        raise AskError(
            f"{length:,} tokens are too few for {len(asked.depths)} numbers: {few:,} are needed for them and "
            "the question; ask longer contexts, or fewer depths"
        )
    guess = min(_FIRST_GUESS, max(2, room // 16))
    best = 1
    for _ in range(_ROUNDS):
        counted = await tokens(guess)
        if counted <= room * (_AIM + _NEAR):
            best = max(best, guess)
            if counted >= room * (_AIM - _NEAR):
                break
        per_sentence = (counted - few) / max(1, guess - 1)
        guess = max(2, 1 + int((room * _AIM - few) / per_sentence))
    return best


async def answers_of(
    server: Server, sheet: Sheet, *, at_once: int = 1, progress: Progress | None = None
) -> Answers:
    """Everything on the sheet asked; of `at_once` contexts at the same time. Raises AskError."""
    gate = asyncio.Semaphore(at_once)
    most = answer_tokens(sheet.digits, is_chat=server.is_chat)
    done = 0

    async def context(at: int) -> tuple[str, ...]:
        nonlocal done
        async with gate:
            text = register(sheet, at)
            said: list[str] = []
            for needle in needles(sheet, at):
                question = prompt(text, needle.name, is_chat=server.is_chat)
                said.append((await server.ask(question, most_tokens=most)).text)
                done += 1
                if progress is not None:
                    progress(done, sheet.trials)
            return tuple(said)

    found = await _all([context(at) for at in range(len(sheet.contexts))])
    return Answers(sheet=sheet, model=server.model, is_chat=server.is_chat, answers=found)


async def _all(work: Sequence[Coroutine[Any, Any, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Every context's answers; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except* AskError as errors:
        raise errors.exceptions[0] from None
    return tuple(task.result() for task in tasks)


def fits(
    lengths: Sequence[int], most_tokens: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths that a server takes, and those that it does not; all, where it does not say how much it takes."""
    if most_tokens is None:
        return tuple(lengths), ()
    return (
        tuple(length for length in lengths if length <= most_tokens),
        tuple(length for length in lengths if length > most_tokens),
    )
