"""What does HAProxy say of itself on its runtime socket?

`show stat` counts requests and gives limits, `show servers state` gives addresses and who closed what
(HAProxy 2.6 and 3.2: management guide, section 9.3). Both are text with a header line; columns that we
do not know are passed over, for every release adds some.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.gate.roster import ServerSeen
from plimsoll.gate.step import LaneSeen

POOL: Final = "pool"
"""The backend that owns health and drain of every server; the lanes follow it."""
NO_LIMIT: Final = 1 << 30
"""HAProxy's 0 and an empty field mean no limit: more than any plan, so that it is lowered at once."""

_FORCED_OFF: Final = 0x01 | 0x08
"""srv_admin_state: maintenance or drain set on this very server, in the configuration or on the socket;
the bits 0x02 and 0x10 are inherited from the server that it follows (HAProxy 2.6 and 3.2, server-t.h)."""
_STOPPED: Final = "0"
"""srv_op_state: 0 is down, 1 starting, 2 running, 3 stopping (HAProxy 2.6 and 3.2, server-t.h)."""


class GateSeen(NamedTuple):
    """HAProxy at one moment."""

    servers: tuple[ServerSeen, ...]
    """All servers, in the order of the configuration."""
    lanes: dict[str, tuple[LaneSeen, ...]]
    """By server: limit and requests in flight, in the order of the lanes."""
    queued: tuple[int, ...]
    """Requests that wait, by lane."""
    refused: tuple[int, ...] = ()
    """5xx that HAProxy itself answered for the lane since it began, by lane."""


class UnreadableError(ValueError):
    """HAProxy's answer is not what it should be: cut off, or of another process."""


def read(stat: str, state: str, lanes: Sequence[str]) -> GateSeen:
    """Both answers as one look. Raises UnreadableError when something that we need is missing."""
    rows = {(row["pxname"], row["svname"]): row for row in _table(stat, separator=",")}
    servers = {
        (row["be_name"], row["srv_name"]): row
        for row in _table(_after_version(state), separator=" ")
    }
    names = [name for backend, name in servers if backend == POOL]
    try:
        seen = {
            name: tuple(_lane(rows[lane, name], servers[lane, name]) for lane in lanes)
            for name in names
        }
        return GateSeen(
            servers=tuple(
                ServerSeen(
                    name=name,
                    address=_address(servers[POOL, name]),
                    is_open=not _is_off(servers[POOL, name]),
                    in_flight=sum(lane.in_flight for lane in seen[name]),
                    is_down=not _is_off(servers[POOL, name])
                    and servers[POOL, name]["srv_op_state"] == _STOPPED,
                )
                for name in names
            ),
            lanes=seen,
            queued=tuple(int(rows[lane, "BACKEND"]["qcur"] or 0) for lane in lanes),
        )
    except KeyError as error:
        raise UnreadableError(f"HAProxy does not show {error.args[0]}") from error
    except ValueError as error:
        raise UnreadableError(f"HAProxy shows a number that is none: {error}") from error


def is_error(answer: str) -> bool:
    """Whether an answer to commands that say nothing when they succeed tells of a failure."""
    return bool(answer.strip())


def _lane(counts: dict[str, str], state: dict[str, str]) -> LaneSeen:
    limit = 0 if _is_off(state) else (int(counts["slim"] or 0) or NO_LIMIT)
    return LaneSeen(limit=limit, in_flight=int(counts["scur"] or 0))


def _is_off(state: dict[str, str]) -> bool:
    return bool(int(state["srv_admin_state"]) & _FORCED_OFF)


def _address(state: dict[str, str]) -> str:
    host = state["srv_addr"]
    return f"[{host}]:{state['srv_port']}" if ":" in host else f"{host}:{state['srv_port']}"


def _after_version(text: str) -> str:
    """Without the first line, which is the format's version."""
    version, _, rest = text.lstrip("\n").partition("\n")
    if version.strip() != "1":
        raise UnreadableError(f"servers' state has version {version[:20]!r}, 1 is known")
    return rest


def _table(text: str, *, separator: str) -> Iterator[dict[str, str]]:
    lines: Iterable[str] = (line for line in text.splitlines() if line.strip())
    columns: list[str] = []
    for line in lines:
        if line.startswith("#"):
            columns = line.removeprefix("#").strip().split(separator)
        elif not columns:
            raise UnreadableError(f"no header line before {line[:40]!r}")
        else:
            yield dict(zip(columns, line.split(separator), strict=False))
