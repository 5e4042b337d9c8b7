"""What is said of a workload that somebody else runs?"""

from enum import StrEnum

from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record
from plimsoll.plan.records import Plan, Refusal


class Level(StrEnum):
    """How much a finding matters."""

    MATTERS = "Matters"
    """It would not start, would not fit, or dies under load that is allowed."""
    ADVICE = "Advice"
    """Worth changing; nothing breaks today."""
    UNKNOWN = "Unknown"
    """What could not be told, and what would tell it."""


class AdviceVerdict(StrEnum):
    """Whether the settings as they are fit the card."""

    FITS = "Fits"
    WOULD_NOT_FIT = "WouldNotFit"
    UNKNOWN = "Unknown"


class Change(StrEnum):
    """What pinning a flag changes."""

    NONE = "None"
    """It is written so already, or would not be pinned."""
    WRITTEN = "Written"
    """The value is what counts today, and would be written down."""
    OTHER = "Other"
    """Another value."""


class Finding(Record):
    """One thing worth saying."""

    level: Level
    """How much it matters."""
    about: str
    """The flag or field that it is about."""
    message: str
    """The sentence, with what to do."""


class SettingRow(Record):
    """One flag: as it is, and as Plimsoll would pin it."""

    flag: str
    """Its full name."""
    now: str | None = None
    """The value that counts today; on and off for switches; None where it is not known or not there."""
    written: str | None = None
    """How the manifest writes it; None where the release's default counts."""
    planned: str | None = None
    """What would be pinned; None where nothing would."""
    why: str = ""
    """Why it is pinned so, or why the default is worth a word."""

    @property
    def change(self) -> Change:
        """What would come of it."""
        if self.planned is None:
            return Change.NONE
        if _plain(self.now) != _plain(self.planned):
            return Change.OTHER
        return Change.NONE if self.written is not None else Change.WRITTEN


def _plain(value: str | None) -> str | float | None:
    """0.90 and 0.900 are the same value."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return value.lower()


class ModelTold(Record):
    """The model, and what says which it is."""

    id: str | None = None
    """Public identity; None where it cannot be told."""
    loads: str = ""
    """What the engine is told to load."""
    address: str | None = None
    """Where the files are."""
    quantization: str | None = None
    """Type of a GGUF file."""
    told_by: str = ""
    """What says which model it is."""


class CardTold(Record):
    """The cards of one pod, and what says which they are."""

    product: str | None = None
    """GPU type; None where nothing tells it."""
    count: int | None = None
    """Cards that the pod asks for; None where it asks for none."""
    told_by: str = ""
    """What says which type it is."""


class Advice(Record):
    """Everything that is said of one workload."""

    object: str
    """Deployment inference/chat."""
    container: str
    """Name of the engine's container."""
    made_by: str = ""
    """Who made the object, where its labels say so."""
    replicas: int = 1
    """Pods that it wants."""
    engine: EngineName | None = None
    """Which engine; None where it is none of ours or cannot be told."""
    started_by: str = ""
    """How the engine is started, or why no engine was found."""
    image: str = ""
    """Its image."""
    release: str | None = None
    """The engine's release; None where nobody says it."""
    model: ModelTold = ModelTold()
    """The model."""
    card: CardTold = CardTold()
    """The cards."""
    verdict: AdviceVerdict = AdviceVerdict.UNKNOWN
    """Whether the settings as they are fit."""
    now: Plan | Refusal | None = None
    """The ledger of the settings as they are, or why they do not fit; None where it cannot be made."""
    ours: Plan | Refusal | None = None
    """What Plimsoll would pin for the same model, card and length; None where that cannot be planned."""
    settings: tuple[SettingRow, ...] = ()
    """Line by line."""
    findings: tuple[Finding, ...] = ()
    """What is worth saying, what matters first."""

    @property
    def matters(self) -> bool:
        """Whether something in it should not wait."""
        return any(found.level is Level.MATTERS for found in self.findings)
