"""Whatever stands in a manifest, advice is given or the lack of it is said."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.advise import Asked, advise
from plimsoll.api.advise_records import Advice, AdviceVerdict, Level
from plimsoll.api.advise_workload import workloads
from plimsoll.api.manifest import read
from plimsoll.catalog.gpus import find_gpu
from plimsoll.plan.records import Plan

DATA = Path(__file__).parents[1] / "data" / "advise"
DOCUMENTS = [
    item
    for path in sorted(DATA.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    for item in document.get("items", [document])
]
JUNK: tuple[Any, ...] = (
    None, "", " ", "x", -1, 0, 2.5, True, [], {}, [None], ["--model"], {"a": 1}, "$(X)", "$", "sh", "-c", "--", "=",
    "1Gi",     ["vllm", "serve"], "--max-model-len=0", "--max-model-len=99999999999999", "--gpu-memory-utilization=nan",
    "--gpu-memory-utilization=7", "-tp=0", "--block-size=7", "--max-num-seqs=-1", "--parallel", "-c", "-ngl",
    "-5", "é\0",     "--kv-cache-dtype=nvfp4", "--model", "vllm serve \"a", "`", "${", "$(", "--tensor-parallel-size=3",
)  # fmt: skip
CARDS = ("l4", "rtx-4090", "h100-sxm", "gb10", "rtx-a6000")


def places(thing: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = (
        thing.items()
        if isinstance(thing, dict)
        else enumerate(thing)
        if isinstance(thing, list)
        else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


@st.composite
def manifests(draw: Any) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from([path for path in places(made) if path]))
        holder: Any = made
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return made


@settings(max_examples=120, deadline=None)
@given(document=manifests(), card=st.sampled_from(CARDS))
def test_any_manifest_gets_advice_that_agrees_with_itself(
    document: dict[str, Any], card: str
) -> None:
    for workload in workloads([document]):
        told = advise(workload, Asked(gpu=find_gpu(card)))
        said = told.advice
        assert said == Advice.model_validate(said.to_json())
        if said.verdict is AdviceVerdict.FITS:
            assert isinstance(said.now, Plan)
            assert sum(line.bytes for line in said.now.ledger) == said.now.card_bytes
        if said.verdict is AdviceVerdict.UNKNOWN:
            assert any(found.level is Level.UNKNOWN for found in said.findings)
        if not isinstance(told.draft, str):
            assert read(told.draft.body).spec.pools
