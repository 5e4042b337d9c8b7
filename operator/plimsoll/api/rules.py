"""What can the API server judge without a cluster, besides types and bounds?

Each row is a CEL rule (x-kubernetes-validations) and the twin of a check in the Python types: the same
field, the same way out. The server refuses at `kubectl apply`, Python does in `plimsoll plan`.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic.alias_generators import to_camel

from plimsoll.api.pool import ENGINE_OF, known_dtypes
from plimsoll.api.spec import FILES, NOBODY_KNOWS
from plimsoll.api.traffic import ONE_CHUNK
from plimsoll.api.v1alpha1 import NAME_FORM
from plimsoll.api.worker import OUR_PREFIXES
from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record

Json = dict[str, Any]


class Rule(Record):
    """One CEL rule on an object."""

    cel: str
    """What must hold; `self` is the object."""
    message: str
    """What to do when it does not."""
    shows: str = ""
    """What goes before the message, with %s and %d for the wrong values."""
    values: tuple[str, ...] = ()
    """CEL of those values."""
    field: str = ""
    """Path of the field that is to blame, below the object."""

    def to_crd(self) -> Json:
        """As an entry of x-kubernetes-validations.

        The values go through `format`: the API server's cost estimate takes the length of `string(self.n)`
        for endless and would refuse the rule (kube-apiserver 1.37.2).
        """
        entry: Json = {"rule": self.cel, "message": self.message}
        if self.shows:
            text = quoted(f"{self.shows} {self.message.replace('%', '%%')}")
            entry["messageExpression"] = f"{text}.format([{', '.join(self.values)}])"
        if self.field:
            entry["fieldPath"] = self.field
        return entry


def quoted(text: str) -> str:
    """As a CEL string."""
    return '"' + text + '"'


def listed(words: tuple[str, ...]) -> str:
    """As a CEL list of strings."""
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _one_of(first: str, second: str, what: str) -> Rule:
    return Rule(
        cel=f"has(self.{first}) != has(self.{second})",
        message=f"needs one {what}; write either {first} or {second}",
    )


def _only_for(name: str, engine: EngineName) -> Rule:
    field = to_camel(name)
    return Rule(
        cel=f"!has(self.{field}) || self.engine == '{engine}'",
        message=f"says nothing to this engine; take it out, or make this a {engine} pool",
        shows="%s",
        values=(f"self.{field}",),
        field=f".{field}",
    )


def _dtype(engine: EngineName) -> Rule:
    return Rule(
        cel=f"!has(self.kvCacheDtype) || self.engine != '{engine}'"
        f" || self.kvCacheDtype in {listed(known_dtypes(engine))}",
        message=f"is not a KV cache dtype of {engine}; write one of {', '.join(known_dtypes(engine))}",
        shows="'%s'",
        values=("self.kvCacheDtype",),
        field=".kvCacheDtype",
    )


def _pools_without(engine: EngineName, missing: str) -> tuple[str, str]:
    """CEL: no pool of the engine lacks something; the names of those that do."""
    return (
        f"!has(self.pools) || !self.pools.exists(p, p.engine == '{engine}' && {missing})",
        f"self.pools.filter(p, p.engine == '{engine}' && {missing}).map(p, p.name)",
    )


def _image(engine: EngineName) -> Rule:
    has_image = (
        f"has(self.engines) && has(self.engines.{engine}) && has(self.engines.{engine}.image)"
    )
    cel, pools = _pools_without(engine, f"!has(p.image) && !({has_image})")
    return Rule(
        cel=cel,
        shows="pool %s",
        values=(pools,),
        message=f"has no image for {engine}; write engines.{engine}.image, or image in the pool",
        field=f".engines.{engine}.image",
    )


def _files(engine: EngineName, member: str, write: str) -> Rule:
    cel, pools = _pools_without(engine, f"!has(self.model.{member})")
    return Rule(
        cel=cel,
        shows="pool %s",
        values=(pools,),
        message=f"runs {engine}, which has nothing to load; write {write}",
        field=f".model.{member}",
    )


def _dtype_of_all(engine: EngineName) -> Rule:
    known = listed(known_dtypes(engine))
    unknown = f"!has(p.kvCacheDtype) && !(self.kvCache.dtype in {known})"
    cel, pools = _pools_without(engine, unknown)
    return Rule(
        cel=f"!has(self.kvCache) || !has(self.kvCache.dtype) || {cel}",
        shows=f"'%s' is not a KV cache dtype of {engine}, the engine of pool %s;",
        values=("self.kvCache.dtype", pools),
        message=f"write one of {', '.join(known_dtypes(engine))} as kvCacheDtype in that pool",
        field=".kvCache.dtype",
    )


def _usable(engine: EngineName, member: str) -> str:
    return f"(has(self.engines.{engine}) && has(self.engines.{engine}.image) && has(self.model.{member}))"


_HAS_KEYS: Final = "has(lane.keys) && lane.keys.size() > 0"
_HAS_LANES: Final = "(has(self.lanes) && self.lanes.size() > 0)"
_OURS: Final = " || ".join(f"key.startsWith('{prefix}')" for prefix in OUR_PREFIXES)

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "InferenceDeployment": (
        Rule(
            cel=f"self.metadata.name.matches(r'{NAME_FORM.whole}')"
            f" && self.metadata.name.size() <= {NAME_FORM.max_length}",
            message=f"cannot be read; {NAME_FORM.says}",
            shows="'%s'",
            values=("self.metadata.name",),
            field=".metadata.name",
        ),
    ),
    "Lengths": (
        Rule(
            cel="self.p50 <= self.p99",
            message="write the median as p50 and the long end as p99",
            shows="%d is above p99, which is %d;",
            values=("self.p50", "self.p99"),
            field=".p50",
        ),
    ),
    "Traffic": (
        Rule(
            cel=f"!({_HAS_LANES} && (has(self.promptTokens) || has(self.outputTokens)))",
            message="has lanes beside promptTokens or outputTokens; keep the lanes, "
            "or the two lengths for all traffic together",
        ),
        Rule(
            cel=f"{_HAS_LANES} || (has(self.promptTokens) && has(self.outputTokens))",
            message="says too little; write both promptTokens and outputTokens, or lanes that have both",
        ),
        Rule(
            cel=f"!{_HAS_LANES} || !self.lanes.all(lane, lane.share.matches(r'^[0-9]+%$'))"
            " || self.lanes.map(lane, int(lane.share.replace('%', ''))).sum() == 100",
            message="change the shares so that they add up to 100%",
            shows="%s is not 100%% together;",
            values=("self.lanes.map(lane, lane.share)",),
            field=".lanes",
        ),
    ),
    "EnvVar": (_one_of("value", "valueFrom", "value"),),
    "FactsSpec": (_one_of("inline", "configMap", "source of facts"),),
    "Pool": (
        *(_only_for(name, engine) for name, engine in ENGINE_OF.items()),
        *(_dtype(engine) for engine in EngineName),
    ),
    "KvOffloadSpec": (
        Rule(
            cel="!has(self.blocksPerChunk) || !has(self.chunkTokens)",
            message=ONE_CHUNK,
            shows="%d",
            values=("self.chunkTokens",),
            field=".chunkTokens",
        ),
    ),
    "WorkerOptions": tuple(
        Rule(
            cel=f"!has(self.{field}) || !self.{field}.exists(key, {_OURS})",
            message=f"is Plimsoll's own; use a prefix other than {' and '.join(OUR_PREFIXES)}",
            shows="%s",
            values=(f"self.{field}.map(key, key).filter(key, {_OURS})",),
            field=f".{field}",
        )
        for field in ("labels", "annotations")
    ),
    "InferenceDeploymentSpec": (
        *(_image(engine) for engine in EngineName),
        *(_files(engine, *FILES[engine]) for engine in EngineName),
        *(_dtype_of_all(engine) for engine in EngineName),
        Rule(
            cel="(has(self.pools) && self.pools.size() > 0) || (has(self.engines) && ("
            f"{' || '.join(_usable(engine, FILES[engine][0]) for engine in EngineName)}))",
            message="has no pools, and no engine that could run the model; "
            "write engines.vllm.image with model.uri, or engines.llamaCpp.image with model.gguf.uri",
            field=".engines",
        ),
        Rule(
            cel="!has(self.traffic) || !has(self.traffic.lanes) || (has(self.gateway) && "
            f"has(self.gateway.keysSecret)) || !self.traffic.lanes.exists(lane, {_HAS_KEYS})",
            shows="lane %s",
            values=(f"self.traffic.lanes.filter(lane, {_HAS_KEYS}).map(lane, lane.name)",),
            message=NOBODY_KNOWS,
            field=".gateway.keysSecret",
        ),
    ),
}
"""By type of the object."""

LISTS_BY_KEY: Final[dict[tuple[str, str], str]] = {
    ("InferenceDeploymentSpec", "pools"): "name",
    ("Pool", "env"): "name",
    ("EngineSpec", "env"): "name",
    ("Traffic", "lanes"): "name",
    ("WorkerOptions", "imagePullSecrets"): "name",
    ("InferenceDeploymentStatus", "pools"): "name",
    ("InferenceDeploymentStatus", "conditions"): "type",
    ("GPUNodeStatus", "conditions"): "type",
    ("GPUNodeStatus", "cards"): "uuid",
}
"""Lists whose entries have a name of their own: (type, field) and the field that names the entry."""

LONGEST_LISTS: Final[dict[tuple[str, str], int]] = {
    ("GgufFacts", "blockBytes"): 512,
    ("GgufFacts", "slidingBlocks"): 512,
    ("GgufFacts", "kvGroups"): 64,
    ("ModelFacts", "kvGroups"): 64,
}
"""Lists of records that set no bound themselves; others have LONGEST_LIST."""
