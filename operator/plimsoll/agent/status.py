"""What does one look at the node come to, after what was known before?

Pure. A driver that does not answer, a card that is gone and a call that is missing become conditions, each
with the way out; facts that were known stay.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll.agent.cards import card_of
from plimsoll.agent.reading import (
    CardReading,
    HostMemory,
    Reading,
    Refused,
    Trouble,
    refusal,
    told,
)
from plimsoll.api.conditions import Condition, Tristate, set_conditions
from plimsoll.api.gpunode import Card, GPUNodeCondition, GPUNodeStatus
from plimsoll.units import counted, gib

MOST_CARDS: Final = 64
"""As many as the CRD takes; NVML knows no node with more."""
MOST_NAMED: Final = 8
WAYS_OUT: Final = {
    Trouble.LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not in the agent's container; run it under NVIDIA's "
    "runtime (agent.runtimeClassName) or mount the driver's libraries (agent.driverPath)",
    Trouble.DRIVER_NOT_LOADED: "the driver's kernel module is not loaded, or its device files are not in "
    "the agent's container; load it, or run the agent under NVIDIA's runtime (agent.runtimeClassName)",
    Trouble.NO_PERMISSION: "the driver refuses the agent's user; let /dev/nvidiactl be read by its group "
    "(agent.supplementalGroups)",
    Trouble.VERSION_MISMATCH: "library and kernel module are of different releases, as after an upgrade; "
    "restart the node or load the module anew",
    Trouble.NO_ANSWER: "a call into the driver does not come back; look for Xid in the kernel's log",
    Trouble.GPU_LOST: "the card fell off the bus; look for Xid 79 in the kernel's log and restart the node",
    Trouble.RESET_REQUIRED: "the card must be reset",
}
"""What a person can do about it."""


def status_of(
    reading: Reading, host: HostMemory | None, before: GPUNodeStatus, now_text: str
) -> GPUNodeStatus:
    """The whole status. `now_text` is RFC 3339 in UTC."""
    cards, silent = _cards(reading, host, before.cards)
    driver = told(reading.driver) or before.driver
    is_same = _facts(cards) == _facts(before.cards) and driver == before.driver
    answered = not isinstance(reading.cards, Refused)
    wanted = (
        _driver_answers(reading),
        _cards_read(reading, cards, silent),
        _memory_known(cards, reading),
        _others_known(cards),
    )
    return GPUNodeStatus(
        observed_at=before.observed_at if is_same and before.observed_at else now_text,
        heartbeat=now_text if answered else before.heartbeat,
        driver=driver,
        cards=cards,
        conditions=set_conditions(before.conditions, wanted, now_text),
    )


def _cards(
    reading: Reading, host: HostMemory | None, before: Sequence[Card]
) -> tuple[tuple[Card, ...], tuple[str, ...]]:
    """The cards, and why each that could not be told from others was silent.

    A card that gives no UUID is one of those known before that are missing now. One that is not in the
    driver's list at all is no longer on the node.
    """
    if isinstance(reading.cards, Refused):
        return tuple(before), ()
    known = {card.uuid: card for card in before}
    seen: dict[str, Card] = {}
    silent = []
    for each in reading.cards:
        uuid = None if isinstance(each, Refused) else told(each.uuid)
        if isinstance(each, Refused) or uuid is None:
            silent.append(_why_silent(each))
            continue
        card = card_of(each, host, known.get(uuid))
        if card.product:
            seen[uuid] = card
        else:
            silent.append(_why_silent(each))
    missing = [card for card in before if card.uuid not in seen]
    kept = [card.model_copy(update={"lost": True}) for card in missing[: len(silent)]]
    return (*seen.values(), *kept)[:MOST_CARDS], tuple(silent)


def _why_silent(answer: CardReading | Refused) -> str:
    if isinstance(answer, Refused):
        return _sentence(answer)
    refused = (each for each in (answer.uuid, answer.name) if isinstance(each, Refused))
    return _sentence(next(refused, Refused(trouble=Trouble.OTHER, says="no name")))


def _sentence(refused: Refused) -> str:
    """What went wrong, and the way out where one is known."""
    way_out = WAYS_OUT.get(refused.trouble)
    said = refused.says or refused.trouble.value
    return f"{said}: {way_out}" if way_out else said


def _facts(cards: Iterable[Card]) -> tuple[Card, ...]:
    """What counts as a fact: not what anybody happens to hold."""
    return tuple(card.model_copy(update={"used_bytes": None}) for card in cards)


def _driver_answers(reading: Reading) -> Condition:
    if isinstance(reading.cards, Refused):
        return _condition(
            GPUNodeCondition.DRIVER_ANSWERS,
            Tristate.FALSE,
            reading.cards.trouble.value,
            f"{_sentence(reading.cards)}. Facts are those of the last answer.",
        )
    return _condition(
        GPUNodeCondition.DRIVER_ANSWERS,
        Tristate.TRUE,
        "NvmlAnswers",
        f"Driver {told(reading.driver) or 'of an unknown release'}.",
    )


def _cards_read(reading: Reading, cards: Sequence[Card], silent: Sequence[str]) -> Condition:
    name = GPUNodeCondition.CARDS_READ
    if isinstance(reading.cards, Refused):
        return _condition(
            name, Tristate.UNKNOWN, reading.cards.trouble.value, "The driver was not reached."
        )
    lost = [card.uuid for card in cards if card.lost]
    if lost or silent:
        words = [f"{_listed(lost)} lost, with the facts of before"] if lost else []
        words += dict.fromkeys(silent)
        return _condition(
            name, Tristate.FALSE, "CardLost" if lost else "CardSilent", f"{'; '.join(words)}."
        )
    if not cards:
        return _condition(
            name,
            Tristate.FALSE,
            "NoCards",
            "The driver shows no card to the agent's container; NVIDIA_VISIBLE_DEVICES may be refused to "
            "pods without a GPU of their own. Node labels are used.",
        )
    return _condition(
        name, Tristate.TRUE, "AllCardsRead", f"{counted(len(cards), 'card')} answered."
    )


def _memory_known(cards: Sequence[Card], reading: Reading) -> Condition:
    """Whether totals and the driver's parts are known; of slices too."""
    name = GPUNodeCondition.MEMORY_KNOWN
    if not cards:
        return _condition(name, Tristate.UNKNOWN, "NoCards", "No card was ever seen.")
    without = [card.uuid for card in cards if card.total_bytes is None]
    if without:
        return _condition(
            name,
            Tristate.FALSE,
            "MemoryNotTold",
            f"{_listed(without)}: {_why_no_memory(reading)}. Unknown is not zero: nothing is planned on "
            "them unless the chart's gpuTypes or the labels tell their memory.",
        )
    partly = [card.product for card in cards if card.reserved_bytes is None]
    if partly:
        return _condition(
            name,
            Tristate.TRUE,
            "DriversPartNotTold",
            f"This driver does not tell its own part of {', '.join(sorted(set(partly)))} (it does from R510 "
            "on); the catalogue's figure, or the largest of the card's class, is taken.",
        )
    unified = sorted({card.product for card in cards if card.unified_memory})
    if unified:
        return _condition(
            name,
            Tristate.TRUE,
            "HostMemory",
            f"{', '.join(unified)} shares the host's memory: the total is the host's MemTotal, and what "
            "processes of the host hold is held of it too.",
        )
    return _condition(name, Tristate.TRUE, "DriverTells", "Totals and the driver's parts are told.")


def _why_no_memory(reading: Reading) -> str:
    if not isinstance(reading.cards, Refused):
        for each in reading.cards:
            if not isinstance(each, Refused) and refusal(each.memory) is not None:
                assert isinstance(each.memory, Refused)
                return f"the driver does not tell ({_sentence(each.memory)})"
    return "neither driver nor host tells"


def _others_known(cards: Sequence[Card]) -> Condition:
    name = GPUNodeCondition.OTHERS_KNOWN
    open_ = [card for card in cards if card.held_by_others_bytes is None and not card.mig_enabled]
    if not cards:
        return _condition(name, Tristate.UNKNOWN, "NoCards", "No card was ever seen.")
    if open_:
        held = _listed([f"{card.uuid} {_held(card)}" for card in open_])
        return _condition(
            name,
            Tristate.UNKNOWN,
            "WhoseIsNotKnown",
            f"{held}; without the host's process table nobody can tell a worker's bytes from others'. It "
            "is known as soon as a card has been seen without a computing process.",
        )
    return _condition(
        name, Tristate.TRUE, "SeenIdle", "Of each card it was seen what others hold at least."
    )


def _listed(names: Sequence[str]) -> str:
    """Some of many names, so that a message stays a message."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _held(card: Card) -> str:
    return "says nothing" if card.used_bytes is None else f"holds {gib(card.used_bytes)}"


def _condition(name: GPUNodeCondition, status: Tristate, reason: str, message: str) -> Condition:
    return Condition(type=name.value, status=status, reason=reason, message=message)
