"""Is a pool's question put with prefix caching, without, or without a word about it?"""

import hashlib
from typing import TYPE_CHECKING, Final

from plimsoll.api.pool import Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.traffic import PrefixCaching
from plimsoll.engines.base import EngineName

if TYPE_CHECKING:
    from plimsoll.api.status_types import PoolStatus

OFF: Final = "Off"
"""State of a pool whose prefix caching was turned off on evidence."""


def prefix_caching(
    spec: InferenceDeploymentSpec, pool: Pool, said: str, before: "PoolStatus | None"
) -> bool | None:
    """As the spec says; under Auto, off where it was turned off for this very spec (`said`)."""
    if pool.engine is not EngineName.VLLM:
        return None
    match spec.kv_cache.prefix_caching:
        case None:
            return None
        case PrefixCaching.ON:
            return True
        case PrefixCaching.OFF:
            return False
        case PrefixCaching.AUTO:
            return not was_turned_off(said, before)


def was_turned_off(said: str, before: "PoolStatus | None") -> bool:
    """Whether the status holds that decision, for a spec that says the same."""
    held = before.prefix_caching if before is not None else None
    return held is not None and held.state == OFF and held.digest == said


def why_off(said: str, before: "PoolStatus | None", *, cached: bool | None) -> tuple[str, ...]:
    """The evidence on which it was turned off, for the plan's notes; () where it was not."""
    if cached is not False or not was_turned_off(said, before):
        return ()
    assert before is not None
    assert before.prefix_caching is not None
    return (before.prefix_caching.message,)


def digest_of(digest: str, spec: InferenceDeploymentSpec, *, cached: bool | None) -> str:
    """The question's digest: another one where Auto has turned prefix caching off, so that it is planned
    anew."""
    if spec.kv_cache.prefix_caching is not PrefixCaching.AUTO or cached is not False:
        return digest
    again = hashlib.sha256(f"{digest} without prefix caching".encode()).hexdigest()
    return f"sha256:{again[:16]}"
