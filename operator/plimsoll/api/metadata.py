"""Which parts of an object's metadata do we look at?"""

from pydantic import ConfigDict, Field

from plimsoll.facts.record import Record


class Metadata(Record):
    """What we look at of an object's metadata; the rest is passed over."""

    model_config = ConfigDict(extra="ignore")

    name: str
    """Name of the object."""
    namespace: str = "default"
    """Its namespace; default when a file does not say."""
    uid: str = ""
    """Its UID; empty in a file."""
    generation: int = 0
    """Counts the changes of the spec."""
    resource_version: str = ""
    """Version of the stored object."""
    creation_timestamp: str | None = None
    """When it was made, RFC 3339."""
    deletion_timestamp: str | None = None
    """When its deletion began, RFC 3339."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Its labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
