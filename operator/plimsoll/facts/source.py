"""Where does a fact come from, and how far do we trust it?"""

from enum import StrEnum

from plimsoll.facts.record import Record


class Confidence(StrEnum):
    """How a number was come by, best first."""

    EXACT = "Exact"
    """Arithmetic on facts read from the thing itself."""
    MEASURED = "Measured"
    """Read off the engine or the card, kept as calibration."""
    TABLE = "Table"
    """From the catalogue or an engine table, with a source."""
    BOUND = "Bound"
    """An upper bound that errs on the safe side."""


class FactSource(StrEnum):
    """Who told us, in order of trust."""

    PROFILE = "Profile"
    """The user's own table."""
    AGENT = "Agent"
    """Our agent on the node, by way of a GPUNode object."""
    DRA = "ResourceSlice"
    LABELS = "NodeLabels"
    NODE = "Node"
    """The node's own memory, where card and host share it."""
    FILES = "ModelFiles"
    """Read from config.json, safetensors headers or a GGUF header."""
    SPEC = "Spec"
    """Given in the object itself."""
    CATALOGUE = "Catalogue"


class Provenance(Record):
    """Where one fact is from, shown beside the plan."""

    source: FactSource
    """Who told us."""
    confidence: Confidence
    """How the number was come by."""
    detail: str = ""
    """The label, file or public reference."""
