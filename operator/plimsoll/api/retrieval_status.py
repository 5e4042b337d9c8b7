"""What is told of the gate before a KV cache of fewer bits?"""

from plimsoll.facts.record import Record


class RetrievalStatus(Record):
    """One pool's gate."""

    pool: str
    """Name of the pool."""
    source: str = ""
    """Address of the model's files."""
    engine: str = ""
    """vllm or llamaCpp."""
    release: str = ""
    """The engine's release."""
    dtype: str = ""
    """The dtype that is tried."""
    state: str
    """NotTried, Waiting, Probing, Passed, Failed or Inconclusive."""
    message: str = ""
    """The numbers, and the way out."""
    at: str | None = None
    """When the probe ended, RFC 3339 in UTC."""
    longest_tokens: int | None = None
    """Longest context that was asked."""
    again: str = ""
    """The annotation plimsoll.dev/probe then."""
    job: str = ""
    """Name of the probe's Job while it runs."""
