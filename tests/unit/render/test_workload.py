from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goldens import FOLDER, assert_golden
from plimsoll.engines.base import Flag
from plimsoll.facts.record import Named
from plimsoll.render.labels import pool_selector
from plimsoll.render.records import PoolWorkload
from plimsoll.render.service import service_manifest
from plimsoll.render.source import parse_source
from plimsoll.render.text import to_yaml
from plimsoll.render.workload import NEWEST_REVISION, REVISIONS, plan_digest, pool_manifests


def test_golden_revision_1_writes_the_bytes_that_it_always_wrote(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    """Running workers were made from these bytes: when this fails, add revision 2 and keep 1."""
    text = to_yaml((*pool_manifests(vllm), *pool_manifests(llama_cpp)))
    assert_golden("workload-revision-1.yaml", text)


def test_golden_revision_2_writes_the_bytes_that_it_always_wrote(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    text = to_yaml(
        manifest
        for workload in (vllm, llama_cpp)
        for manifest in pool_manifests(workload.model_copy(update={"template_revision": 2}))
    )
    assert_golden("workload-revision-2.yaml", text)


def test_golden_revision_3_writes_the_bytes_that_it_always_wrote(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    text = to_yaml(
        manifest
        for workload in (vllm, llama_cpp)
        for manifest in pool_manifests(workload.model_copy(update={"template_revision": 3}))
    )
    assert_golden("workload-revision-3.yaml", text)


def test_the_plan_is_on_the_pod_for_proxies_that_are_not_ours(vllm: PoolWorkload) -> None:
    old, new = (pod(vllm, "sha256:0")["metadata"]["labels"] for pod in (REVISIONS[2], REVISIONS[3]))
    said = vllm.plan.concurrency.max_num_seqs, vllm.plan.kv.pool_tokens, vllm.plan.max_model_len
    assert (str(said[0]), str(said[1]), str(said[2])) == (
        new["plimsoll.dev/max-num-seqs"],
        new["plimsoll.dev/kv-tokens"],
        new["plimsoll.dev/max-model-len"],
    )
    assert old.items() <= new.items()
    assert 3 == len(new) - len(old)


def test_every_revision_has_a_golden_file() -> None:
    assert {f"workload-revision-{number}.yaml" for number in REVISIONS} == {
        path.name for path in FOLDER.glob("workload-revision-*.yaml")
    }
    assert NEWEST_REVISION in REVISIONS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.permutations(
        [Named(name=n, value=v) for n, v in (("a", "1"), ("b", "2"), ("c", "3"), ("a", "4"))]
    )
)
def test_labels_in_another_order_give_the_same_bytes(
    vllm: PoolWorkload, labels: list[Named]
) -> None:
    ordered = vllm.model_copy(update={"match_labels": tuple(sorted(labels, key=lambda e: e.value))})
    shuffled = vllm.model_copy(update={"match_labels": tuple(labels)})
    assert to_yaml(pool_manifests(ordered)) == to_yaml(pool_manifests(shuffled))


def test_a_record_read_back_from_json_gives_the_same_bytes(vllm: PoolWorkload) -> None:
    again = PoolWorkload.model_validate(vllm.to_json())
    assert to_yaml(pool_manifests(vllm)) == to_yaml(pool_manifests(again))


def test_a_spare_card_lets_the_new_worker_come_first(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    assert pool_manifests(vllm)[0]["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }
    assert pool_manifests(llama_cpp)[0]["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 1,
        "maxUnavailable": 0,
    }


def test_a_spare_card_moves_no_pod(vllm: PoolWorkload) -> None:
    other = vllm.model_copy(update={"spare_card": True, "replicas": 5})
    assert (
        pool_manifests(vllm)[0]["spec"]["template"] == pool_manifests(other)[0]["spec"]["template"]
    )


def test_the_owner_is_named_without_asking_for_another_right(vllm: PoolWorkload) -> None:
    for manifest in (*pool_manifests(vllm), service_manifest(vllm.owner)):
        assert manifest["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "plimsoll.dev/v1alpha1",
                "kind": "InferenceDeployment",
                "name": "llama-70b",
                "uid": "0a7c2c3e-5a0e-4c0f-9d6e-1f2a3b4c5d6e",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
        assert manifest["metadata"]["namespace"] == "inference"


def test_offline_there_is_no_owner(vllm: PoolWorkload) -> None:
    offline = vllm.model_copy(update={"owner": vllm.owner.model_copy(update={"uid": None})})
    for manifest in (*pool_manifests(offline), service_manifest(offline.owner)):
        assert "ownerReferences" not in manifest["metadata"]


def test_labels_are_ours_alone(vllm: PoolWorkload) -> None:
    deployment, budget = pool_manifests(vllm)
    assert deployment["metadata"]["labels"] == {
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "plimsoll",
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/version": "0.22.1",
        "plimsoll.dev/deployment": "llama-70b",
        "plimsoll.dev/pool": "a6000-tp4",
    }
    assert deployment["metadata"]["labels"] == budget["metadata"]["labels"]


def test_a_new_release_alone_moves_no_pod(vllm: PoolWorkload) -> None:
    unnamed = vllm.model_copy(update={"release": None})
    assert (
        pool_manifests(vllm)[0]["spec"]["template"]
        == pool_manifests(unnamed)[0]["spec"]["template"]
    )


def test_the_selector_picks_the_pods_of_the_template(
    vllm: PoolWorkload, llama_cpp: PoolWorkload
) -> None:
    for workload in (vllm, llama_cpp):
        deployment, budget = pool_manifests(workload)
        wanted = pool_selector("llama-70b", workload.pool)
        assert {"matchLabels": wanted} == deployment["spec"]["selector"]
        assert {"matchLabels": wanted} == budget["spec"]["selector"]
        assert wanted.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_one_worker_may_be_drained_and_a_broken_one_never_blocks(vllm: PoolWorkload) -> None:
    spec = pool_manifests(vllm)[1]["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_every_name_is_at_most_63_characters(vllm: PoolWorkload) -> None:
    owner = vllm.owner.model_copy(update={"name": "n" * 200})
    long = vllm.model_copy(update={"owner": owner, "pool": "p" * 63})
    for manifest in (*pool_manifests(long), service_manifest(owner)):
        metadata = manifest["metadata"]
        assert len(metadata["name"]) <= 63
        assert all(len(value) <= 63 for value in metadata["labels"].values())


def test_another_flag_is_another_plan_and_another_sentence_is_not(vllm: PoolWorkload) -> None:
    plan = vllm.plan
    reworded = plan.model_copy(update={"explanation": "said better", "notes": ("new",)})
    longer = plan.model_copy(update={"flags": (Flag(name="--max-model-len", value="8192"),)})
    digests = [plan_digest(vllm.model_copy(update={"plan": p})) for p in (plan, reworded, longer)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    deployment = pool_manifests(vllm)[0]
    assert digests[0] == deployment["metadata"]["annotations"]["plimsoll.dev/plan"]
    assert (
        digests[0] == deployment["spec"]["template"]["metadata"]["annotations"]["plimsoll.dev/plan"]
    )


def test_a_template_of_a_newer_operator_is_not_guessed(vllm: PoolWorkload) -> None:
    with pytest.raises(ValueError, match="revision 99 is not known here, only 1, 2"):
        pool_manifests(vllm.model_copy(update={"template_revision": 99}))


def test_a_source_that_the_engine_cannot_load_is_not_rendered(vllm: PoolWorkload) -> None:
    wrong = vllm.model_copy(update={"source": parse_source("hf://org/name/file.gguf")})
    with pytest.raises(ValueError, match="vLLM loads a whole repository"):
        pool_manifests(wrong)
