"""What may a person say about KV in host memory, and what is refused with the way to say it?"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import scenes
from plimsoll.api.asks import PoolAsk, Reach, ask_of
from plimsoll.api.manifest import DeploymentManifest
from plimsoll.api.model_facts import known_model
from plimsoll.api.v1alpha1 import InferenceDeployment, explain_errors
from plimsoll.decide import Manifest
from plimsoll.plan.records import KvOffloadAsk, Reason
from plimsoll.units import GIB


def spec(pool: dict[str, Any] | None = None, **changes: Any) -> Manifest:
    """The mixed fleet's first pool."""
    raw = scenes.example("mixed-fleet", **changes)
    raw["spec"]["pools"] = [raw["spec"]["pools"][0] | (pool or {})]
    return raw


def ask(raw: Manifest, at: int = 0) -> PoolAsk:
    """One pool's question."""
    deployment = DeploymentManifest.model_validate(raw)
    reach = Reach(
        spec=deployment.spec,
        known=known_model(deployment.spec, None, None),
        inventory=scenes.MIXED,
    )
    return ask_of(reach, deployment.spec.pools[at])


def offload(raw: Manifest, at: int = 0) -> KvOffloadAsk | None:
    """What the question says of host memory."""
    request = ask(raw, at).request
    assert request is not None
    return request.kv_offload


def problems(raw: Manifest) -> str:
    """Why it cannot be read."""
    with pytest.raises(ValidationError) as caught:
        InferenceDeployment.model_validate(raw)
    return "; ".join(explain_errors(caught.value))


def test_nobody_speaks_of_it() -> None:
    assert offload(spec()) is None


def test_all_pools_of_vllm_keep_what_is_said_for_all() -> None:
    raw = scenes.example("mixed-fleet", kvCache={"offload": {"hostMemory": "64Gi"}})
    assert KvOffloadAsk(64 * GIB) == offload(raw, 0)
    assert offload(raw, 1) is None  # llama.cpp


def test_a_pool_has_its_own_word() -> None:
    own = {"kvOffloadMemory": "8Gi"}
    raw = spec(own, kvCache={"offload": {"hostMemory": "64Gi", "chunkTokens": 256}})
    assert KvOffloadAsk(8 * GIB, chunk_tokens=256) == offload(raw)
    assert KvOffloadAsk(8 * GIB) == offload(spec(own))


def test_a_pool_may_say_none() -> None:
    raw = spec({"kvOffloadMemory": 0}, kvCache={"offload": {"hostMemory": "64Gi"}})
    assert offload(raw) is None


def test_a_chunk_is_said_once() -> None:
    twice = {"hostMemory": "64Gi", "blocksPerChunk": 4, "chunkTokens": 64}
    assert "keep blocksPerChunk or chunkTokens" in problems(spec(kvCache={"offload": twice}))


def test_it_says_nothing_to_llama_cpp() -> None:
    raw = scenes.example("mixed-fleet")
    raw["spec"]["pools"][1]["kvOffloadMemory"] = "8Gi"
    assert "make this a vllm pool" in problems(raw)


def test_the_question_is_another_one_with_it_and_the_same_without() -> None:
    without, with_ = (
        ask(spec()),
        ask(spec(kvCache={"dtype": "auto", "offload": {"hostMemory": "1Gi"}})),
    )
    assert without.digest != with_.digest
    assert ask(spec()).digest == without.digest


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ({"extraArgs": ["--kv-offloading-size", "64"]}, "--kv-offloading-size"),
        ({"extraArgs": ["--kv_offloading_size=64"]}, "--kv-offloading-size"),
        ({"extraArgs": ["--kv-offloading-backend=lmcache"]}, "--kv-offloading-backend"),
        ({"extraArgs": ["--kv-transfer-config", "{}"]}, "--kv-transfer-config"),
        ({"extraArgs": ["--kv-transfer-config.kv_connector", "x"]}, "--kv-transfer-config"),
        ({"env": [{"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": "5"}]}, "--kv-transfer-config"),
        ({"env": [{"name": "LMCACHE_CONFIG_FILE", "value": "x"}]}, "--kv-transfer-config"),
        ({"env": [{"name": "VLLM_USE_SIMPLE_KV_OFFLOAD", "value": "1"}]}, "--kv-offloading-size"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_asking_by_other_ways_is_refused_with_the_typed_field(
    words: dict[str, Any], flag: str
) -> None:
    refusal = ask(spec(words)).refusal
    assert refusal is not None
    assert Reason.FLAG_IS_PINNED is refusal.reason
    assert flag in refusal.message
    assert refusal.message.endswith("take it out, or use kvCache.offload.")


@pytest.mark.parametrize(
    "words",
    [
        {"extraArgs": ["--no-enable-prefix-caching"]},
        {"extraArgs": ["--mamba-cache-mode", "all"]},
    ],
)
def test_prefix_caching_has_a_field_as_well(words: dict[str, Any]) -> None:
    refusal = ask(spec(words)).refusal
    assert refusal is not None
    assert refusal.message.endswith("take it out, or use kvCache.prefixCaching.")


def test_other_variables_of_such_names_are_nobodys_business() -> None:
    assert ask(spec({"env": [{"name": "MY_LMCACHE_NOTE", "value": "x"}]})).refusal is None


def test_flags_of_two_fields_name_both() -> None:
    words = {"extraArgs": ["--kv-offloading-size", "64", "--max-num-seqs", "9"]}
    refusal = ask(spec(words)).refusal
    assert refusal is not None
    assert "the pool's own field for it and kvCache.offload" in refusal.message


@pytest.mark.parametrize(
    ("release", "value", "stops"),
    [
        ("0.22.1", "expandable_segments:True", True),
        ("0.22.1", "max_split_size_mb:512,expandable_segments:True", True),
        ("0.22.1", "expandable_segments:False", False),
        ("0.20.2", "expandable_segments:True", False),
    ],
)
def test_memory_that_moves_cannot_be_offloaded(release: str, value: str, stops: bool) -> None:
    words = {
        "env": [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": value}],
        "image": f"vllm/vllm-openai:v{release}",
    }
    assert ask(spec(words)).refusal is None
    refusal = ask(spec(words, kvCache={"offload": {"hostMemory": "64Gi"}})).refusal
    assert stops == (refusal is not None)
    if refusal is not None:
        assert Reason.KV_OFFLOAD_CANNOT_WORK is refusal.reason


def test_from_the_spec_to_the_pod() -> None:
    raw = spec({"image": "vllm/vllm-openai:v0.33.0"}, kvCache={"offload": {"hostMemory": "64Gi"}})
    (deployment,) = scenes.deployments(scenes.think(raw)).values()
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--kv-transfer-config" in container["args"]
    (shm,) = [each for each in pod["volumes"] if each["name"] == "shm"]
    plain = spec({"image": "vllm/vllm-openai:v0.33.0"})
    (other,) = scenes.deployments(scenes.think(plain)).values()
    before = other["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    after = container["resources"]["limits"]["memory"]
    assert 64 * 1024 - 16 <= _mebibytes(after) - _mebibytes(before) <= 64 * 1024
    assert _mebibytes(shm["emptyDir"]["sizeLimit"]) >= 64 * 1024
    assert container["resources"]["requests"]["memory"] == after


def _mebibytes(quantity: str) -> int:
    number = int(quantity[:-2])
    return number * 1024 if quantity.endswith("Gi") else number
