"""Has the gate before a KV cache of fewer bits opened for one pool's question?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.api.kv_gate_records import Probed, ProbeRecord, answer_to
from plimsoll.api.pool import DTYPES, Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.api.traffic import KvCacheDtype
from plimsoll.engines.base import EngineName
from plimsoll.facts.retrieval import RetrievalVerdict
from plimsoll.plan.kv_gain import kv_gain, planned_length
from plimsoll.plan.records import PlanRequest

if TYPE_CHECKING:
    from plimsoll.api.status_types import PoolStatus


def tried_dtype(spec: InferenceDeploymentSpec, pool: Pool) -> str | None:
    """The dtype to which `auto` goes in this pool once it has passed; None where nothing is tried."""
    wanted = spec.kv_cache.try_dtype
    if wanted is None or spec.kv_cache_dtype_of(pool) is not KvCacheDtype.AUTO:
        return None
    return wanted.value if pool.engine in DTYPES[KvCacheDtype(wanted.value)] else None


def opened_dtype(
    probed: Probed | None,
    records: Sequence[ProbeRecord],
    request: PlanRequest | None,
    before: "PoolStatus | None",
) -> str | None:
    """The dtype, where it has passed for contexts as long as are planned and gains something; else None.

    What the pool runs already it keeps: a newer planner that counts the gain otherwise moves no pods, and
    neither does a question that cannot be put (`request` is None).
    """
    if probed is None:
        return None
    held = before.plan if before is not None else None
    has_it = held is not None and held.kv.dtype == probed.dtype
    length = held.max_model_len if held is not None else None
    if request is not None:
        length = planned_length(request)
    record = answer_to(records, probed, length_tokens=length) if length is not None else None
    if record is None or record.report.verdict is not RetrievalVerdict.PASSED:
        return None
    if has_it or (request is not None and kv_gain(request, probed.dtype).is_gain):
        return probed.dtype
    return None


def tries_of(raw: Mapping[str, Any]) -> bool:
    """Whether an object asks for a probe, read leniently."""
    spec = raw.get("spec")
    kv = spec.get("kvCache") if isinstance(spec, Mapping) else None
    return isinstance(kv, Mapping) and kv.get("tryDtype") is not None


def probed_of(
    source: str | None, engine: EngineName, release: str | None, dtype: str | None, again: str
) -> Probed | None:
    """What a probe of this pool would speak of; None where part of it is not known."""
    if source is None or release is None or dtype is None:
        return None
    return Probed(source=source, engine=engine.value, release=release, dtype=dtype, again=again)
