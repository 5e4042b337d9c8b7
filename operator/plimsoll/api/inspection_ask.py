"""Which question about a model's files does an object put, and what has been seen of the answer?"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict

from plimsoll.api.allowed import Allowed, may_read
from plimsoll.api.model_facts import GGUF, MODEL
from plimsoll.facts.inspection import InspectionReport
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.facts.record import Record
from plimsoll.render.inspection import Source
from plimsoll.render.labels import facts_name, inspection_name, short_hash
from plimsoll.render.records import Manifest
from plimsoll.render.source import SourceKind, parse_source

INSPECT_ANNOTATION: Final = "plimsoll.dev/inspect"
"""Any value; a changed one asks that the files be read again."""
READABLE: Final = (SourceKind.CLAIM, SourceKind.HOST_PATH, SourceKind.IMAGE)
"""Where a pod without a network can read."""


class InspectionAsk(NamedTuple):
    """Which files are to be read."""

    digest: str
    """Of the addresses and of the annotation that asks for another look."""
    uris: tuple[str, ...]
    """Their addresses."""
    sources: tuple[Source, ...]
    """The same as volumes."""
    identity: str
    """What the model is called in its facts."""
    deployment: str
    """Name of the InferenceDeployment."""

    def inspection(self, image: str) -> str:
        """The question as it is put to one release of Plimsoll; eight hex digits."""
        return short_hash(self.digest, image)

    def job_name(self, image: str) -> str:
        """Name of the Job that answers it."""
        return inspection_name(self.deployment, self.inspection(image))

    @property
    def cache_name(self) -> str:
        """Name of the ConfigMap that keeps the answer."""
        return facts_name(self.deployment)


class InspectionSeen(Record):
    """What the cluster shows of it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    image: str = ""
    """Plimsoll's own image; empty where nothing is to be read in the cluster."""
    image_pull_policy: str | None = None
    """How it is pulled."""
    cache: Manifest | None = None
    """The ConfigMap with what was read last."""
    job: Manifest | None = None
    """The Job that answers the question as it is now."""
    pods: tuple[Manifest, ...] = ()
    """Pods of inspections."""


class InspectionRecord(Record):
    """What the ConfigMap keeps."""

    ask: str
    """Digest of the question."""
    uris: tuple[str, ...]
    """The addresses that were read."""
    kinds: tuple[str, ...] = ()
    """What lies at each: model or gguf."""
    image: str = ""
    """Who read them."""
    read_at: str = ""
    """When, RFC 3339 in UTC."""
    reports: tuple[InspectionReport, ...] = ()
    """What was found, one for each address, in their order."""
    failed: str = ""
    """Why nothing could be read, in the cluster's words."""
    weighs: str = ""
    """Digest of facts that are heavier than those that went before; a plan made on those is made anew."""
    notes: tuple[str, ...] = ()
    """Contradictions with the catalogue, and changes since the last look."""

    def of(self, kind: str) -> ModelFacts | GgufFacts | None:
        """Facts of one kind."""
        found = (getattr(report, kind) for report in self.reports)
        facts: ModelFacts | GgufFacts | None = next((f for f in found if f is not None), None)
        return facts

    @property
    def is_final(self) -> bool:
        """Whether another release of Plimsoll would find the same: facts do not depend on who reads."""
        return not self.failed and not any(report.refused for report in self.reports)


def inspection_ask(raw: Mapping[str, Any]) -> InspectionAsk | None:
    """The question that a deployment's object puts, read leniently; None where there is none."""
    metadata, spec = raw.get("metadata") or {}, raw.get("spec")
    model = spec.get("model") if isinstance(spec, Mapping) else None
    if not isinstance(model, Mapping) or model.get("facts") is not None:
        return None
    gguf = model.get("gguf")
    named = ((MODEL, model.get("uri")), (GGUF, gguf.get("uri") if isinstance(gguf, dict) else None))
    sources: list[Source] = []
    for name, uri in named:
        try:
            source = parse_source(uri) if isinstance(uri, str) else None
        except ValueError:
            return None
        if source is not None and source.kind in READABLE:
            sources.append(Source(name, source))
    if not sources:
        return None
    uris = tuple(each.source.uri for each in sources)
    identity = model.get("id") or model.get("name") or "model"
    again = (metadata.get("annotations") or {}).get(INSPECT_ANNOTATION, "")
    return InspectionAsk(
        digest=short_hash(*uris, str(identity), str(again)),
        uris=uris,
        sources=tuple(sources),
        identity=str(identity),
        deployment=str(metadata.get("name", "")),
    )


def allowed_ask(raw: Mapping[str, Any], allowed: Allowed) -> InspectionAsk | None:
    """The same question; None also where the site keeps pods from one of the files."""
    ask = inspection_ask(raw)
    if ask is None or all(may_read(each.source, allowed) for each in ask.sources):
        return ask
    return None
