"""In which words does the gate refuse, so that an OpenAI client understands?"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

KB: Final = 1024

TYPES: Final = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
"""Status -> `type` of OpenAI's error; every other refusal is an `invalid_request_error`."""


class Refusal(NamedTuple):
    """One answer that the gate gives itself."""

    status: int
    """HTTP status."""
    code: str
    """Reason in one word: in the body, in X-Plimsoll-Reason and in the log."""
    message: str
    """The sentence; may hold %[...] of HAProxy that give numbers, never text of the client's."""
    lane: str | None = None
    """The lane, where it is about one."""
    retry: bool = False
    """Whether to come back later helps."""


OWN_ERRORS: Final = (
    Refusal(400, "bad_request", "this is no request that HTTP knows"),
    Refusal(408, "slow_request", "the request did not arrive in time"),
    Refusal(500, "gate_failed", "the gate failed"),
    Refusal(502, "worker_broke", "the worker ended the connection before it answered"),
    Refusal(504, "worker_silent", "the worker did not answer in time"),
)
"""What HAProxy answers of itself, in the same form; its 503 is written by lane."""


def own_error(refusal: Refusal) -> str:
    """HAProxy's own answer of that status."""
    return (
        f"    http-error status {refusal.status} content-type application/json "
        f"string '{_body(refusal)}' hdr X-Plimsoll-Reason {refusal.code}"
    )


def refuse(refusal: Refusal, condition: str) -> str:
    """The rule that gives this answer when the condition holds, and remembers why for the log."""
    later = ' hdr Retry-After "%[var(txn.retry)]"' if refusal.retry else ""
    return (
        f"    http-request set-var(txn.reason) str({refusal.code}) if {condition}\n"
        f"    http-request return status {refusal.status} content-type application/json "
        f"lf-string '{_body(refusal)}' hdr X-Plimsoll-Reason {refusal.code}{later} if {condition}"
    )


def _body(refusal: Refusal) -> str:
    body = json.dumps(
        {
            "error": {
                "message": refusal.message,
                "type": TYPES.get(refusal.status, "invalid_request_error"),
                "code": refusal.code,
                "param": None,
                **({} if refusal.lane is None else {"lane": refusal.lane}),
            }
        },
        separators=(",", ":"),
    )
    if "'" in body:
        raise ValueError(f"{refusal.message!r} holds a quote, which would end HAProxy's text")
    return body
