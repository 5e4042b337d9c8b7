"""What does a command tell the shell that called it?"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command tells the shell that called it."""

    FITS = 0
    """Done; everything that was asked fits."""
    DIFFERS = 1
    """`generate --check` found a file that is not what the code prints."""
    BAD_INPUT = 2
    """A file, field or argument that cannot be read as meant; the message says which and how."""
    REFUSED = 3
    """Read and understood, and at least one answer is a refusal."""


class BadInputError(Exception):
    """What a person wrote cannot be read as meant: names the field, the value and the way out."""
