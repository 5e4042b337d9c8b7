"""What can the API server answer instead of what we asked for?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final


class ApiError(Exception):
    """The API server refused, or could not be reached."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        """What the server said."""
        self.status = status
        """HTTP status; 0 when no answer came."""
        self.reason = reason
        """The server's own word, for example AlreadyExists."""


class NotFound(ApiError):  # noqa: N818 - the answer's name, not a mistake of ours
    """There is no such object, or no such resource."""


class Conflict(ApiError):  # noqa: N818
    """Somebody else was there first: another owner of a field, another uid or version."""


class Forbidden(ApiError):  # noqa: N818
    """Not allowed, by RBAC, by admission, or because the namespace is going away."""


class Unauthorized(ApiError):  # noqa: N818
    """The server does not know us, also after reading our credentials again."""


class Invalid(ApiError):  # noqa: N818
    """The object is not acceptable; the message says which field."""


class Expired(ApiError):  # noqa: N818
    """The page or version asked for is too old; list again."""


class Unavailable(ApiError):  # noqa: N818
    """No answer, too many requests, or the server is in trouble. Worth trying again later."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds
        """What the server asked us to wait; 0 where it did not say."""


class NotLeading(ApiError):  # noqa: N818
    """We do not hold the Lease (any more), so nothing was sent."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}
_SHOWN_CHARACTERS: Final = 2000


def error_of(status: int, body: bytes, *, retry_after_seconds: float = 0.0) -> ApiError:
    """The answer as an error, with the server's message."""
    reason, message = "", body[:_SHOWN_CHARACTERS].decode("utf-8", "replace").strip()
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        reason = str(parsed.get("reason") or "")
        message = str(parsed.get("message") or message)[:_SHOWN_CHARACTERS]
    message = message or f"HTTP {status}"
    kind = _BY_STATUS.get(status)
    if kind is None:
        return Unavailable(
            message, status=status, reason=reason, retry_after_seconds=retry_after_seconds
        )
    return kind(message, status=status, reason=reason)
