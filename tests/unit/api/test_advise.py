"""What is said of an engine that somebody else runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api.advise import Asked, Told, advise
from plimsoll.api.advise_records import Advice, AdviceVerdict, Change, Level
from plimsoll.api.advise_workload import workloads
from plimsoll.api.manifest import read
from plimsoll.api.requests import pool_asks
from plimsoll.catalog.gpus import find_gpu
from plimsoll.facts.gpu import GpuFacts, Inventory, NodeGpus
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Lane, Plan, Reason, Refusal, TokenQuantiles

DATA = Path(__file__).parents[2] / "data" / "advise"
VLLM = "vllm/vllm-openai:v0.22.1"
LLAMA_CPP = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"
NOTHING = Asked()
EIGHT_B = "meta-llama/Llama-3.1-8B-Instruct"


def card(name: str) -> GpuFacts:
    found = find_gpu(name)
    assert found is not None
    return found


def of_file(name: str, asked: Asked = NOTHING) -> list[Told]:
    documents = list(yaml.safe_load_all((DATA / name).read_text(encoding="utf-8")))
    items = [item for each in documents for item in each.get("items", [each])]
    return [advise(workload, asked) for workload in workloads(items)]


def told(
    args: str,
    *,
    gpu: str | None = "rtx-4090",
    image: str = VLLM,
    cards: int = 1,
    asked: Asked = NOTHING,
    env: dict[str, str] | None = None,
    **container: Any,
) -> Told:
    spec = {
        "containers": [
            {
                "name": "llm",
                "image": image,
                "args": args.split(),
                "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
                "resources": {"limits": {"nvidia.com/gpu": cards, "memory": "64Gi"}},
                "readinessProbe": {"httpGet": {"path": "/health"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                **container,
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    (workload,) = workloads([{"kind": "Pod", "metadata": {"name": "chat"}, "spec": spec}])
    return advise(workload, asked._replace(gpu=card(gpu)) if gpu else asked)


def said(args: str, **rest: Any) -> Advice:
    return told(args, **rest).advice


def about(advice: Advice, level: Level) -> list[str]:
    return [found.about for found in advice.findings if found.level is level]


def held(outcome: Plan | Refusal | None) -> Plan:
    assert isinstance(outcome, Plan), outcome
    return outcome


# ---- the same planner --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "pool"),
    [
        ("--max-model-len 8192 --max-num-seqs 16 --gpu-memory-utilization 0.9",
         {"maxModelLen": 8192, "maxNumSeqs": 16, "gpuMemoryUtilization": 0.9, "maxNumBatchedTokens": 2048}),
        ("--max_model_len=4k -tp 2 --kv-cache-dtype fp8 --max-num-batched-tokens 1024 --block-size 32",
         {"maxModelLen": 4000, "maxNumSeqs": 256, "gpuMemoryUtilization": 0.92, "maxNumBatchedTokens": 1024,
          "blockSize": 32, "kvCacheDtype": "fp8"}),
    ],
)  # fmt: skip
def test_the_ledger_of_today_is_that_of_a_pool_with_the_same_values_pinned(
    args: str, pool: dict[str, Any]
) -> None:
    now = held(said(f"{EIGHT_B} {args}", cards=2).now)
    cards = 2 if "-tp 2" in args else 1
    gpu = card("rtx-4090")
    body = {
        "metadata": {"name": "x"},
        "spec": {
            "model": {"name": "x", "id": EIGHT_B, "uri": f"hf://{EIGHT_B}"},
            "engines": {"vllm": {"image": VLLM}},
            "pools": [{"name": "p", "engine": "vllm", "gpu": {"product": gpu.product, "perWorker": cards}, **pool}],
        },
    }  # fmt: skip
    inventory = Inventory(nodes=(NodeGpus(node="n", gpu=gpu, count=cards, free=0),))
    request = pool_asks(read(body), inventory)[0].request
    assert request is not None
    assert held(plan(request)).ledger == now.ledger


def test_the_drafted_manifest_is_what_was_planned() -> None:
    found = told(f"{EIGHT_B} --max-model-len 8192")
    assert not isinstance(found.draft, str)
    inventory = Inventory(nodes=(NodeGpus(node="n", gpu=card("rtx-4090"), count=1, free=0),))
    ask = pool_asks(read(found.draft.body), inventory)[0]
    assert ask.request is not None
    assert found.advice.ours == plan(ask.request)


def test_what_plimsoll_pins_is_advised_to_be_left_as_it_is() -> None:
    first = held(said(f"{EIGHT_B} --max-model-len 8192").ours)
    again = said(
        " ".join((EIGHT_B, *first.args())), env={pair.name: pair.value for pair in first.env}
    )
    assert AdviceVerdict.FITS is again.verdict
    assert [] == [row.flag for row in again.settings if row.change is not Change.NONE]
    assert [] == [*about(again, Level.MATTERS), *about(again, Level.UNKNOWN)]
    assert first.ledger == held(again.now).ledger


def test_the_same_holds_for_llama_server() -> None:
    file = "/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    first = held(said(f"-m {file} -c 8192 -np 2 -ngl 99", image=LLAMA_CPP).ours)
    again = said(" ".join(("-m", file, *first.args())), image=LLAMA_CPP)
    assert AdviceVerdict.FITS is again.verdict
    assert [] == [row.flag for row in again.settings if row.change is not Change.NONE]
    assert [] == about(again, Level.MATTERS)
    assert first.ledger == held(again.now).ledger


# ---- verdicts ----------------------------------------------------------------------------------------


def test_a_model_that_is_too_large_would_not_fit_and_that_matters() -> None:
    found = said("Qwen/Qwen3-32B --max-model-len 4096")
    assert AdviceVerdict.WOULD_NOT_FIT is found.verdict
    assert isinstance(found.now, Refusal)
    assert Reason.WEIGHTS_DO_NOT_FIT is found.now.reason
    assert "memory" in about(found, Level.MATTERS)


def test_a_length_that_does_not_fit_is_planned_shorter_and_said() -> None:
    found = said(f"{EIGHT_B} --max-model-len 131072")
    assert AdviceVerdict.WOULD_NOT_FIT is found.verdict
    assert held(found.ours).max_model_len < 131072
    assert "plan" in about(found, Level.ADVICE)


def test_the_same_length_may_fit_once_sequences_and_share_are_planned() -> None:
    found = said("Qwen/Qwen3-8B --max-model-len 40960")
    assert AdviceVerdict.WOULD_NOT_FIT is found.verdict
    assert 40960 == held(found.ours).max_model_len


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        ("--cpu-offload-gb 10", "--cpu-offload-gb"),
        ("--pipeline-parallel-size 2", "--pipeline-parallel-size"),
        ("--quantization fp8", "--quantization"),
        ("--dtype float32", "--dtype"),
        ("--config /etc/vllm.yaml", "--config"),
        ("--kv-cache-memory-bytes 4G", "--kv-cache-memory-bytes"),
        ("--max-model-len $(LEN)", "--max-model-len"),
        ("--num-gpu-blocks-override 100", "--num-gpu-blocks-override"),
    ],
)
def test_what_the_arithmetic_does_not_cover_is_not_judged_and_said(args: str, flag: str) -> None:
    found = said(f"{EIGHT_B} {args}", cards=2)
    assert (AdviceVerdict.UNKNOWN, None) == (found.verdict, found.now)
    assert flag in about(found, Level.UNKNOWN)


def test_what_only_adds_is_not_judged_to_fit_and_is_judged_not_to() -> None:
    fits = said(f"{EIGHT_B} --max-model-len 4096 --enable-lora")
    assert (AdviceVerdict.UNKNOWN, True) == (fits.verdict, isinstance(fits.now, Plan))
    assert AdviceVerdict.WOULD_NOT_FIT is said("Qwen/Qwen3-32B --enable-lora").verdict


@pytest.mark.parametrize(
    ("args", "image"),
    [
        (f"{EIGHT_B} --max-model-len 4096 --kv-cache-dtype nvfp4", VLLM),
        ("-m /m/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 4096 -np 1 -ngl 99 -ctk q5_1 -ctv q5_1", LLAMA_CPP),
        ("-m /m/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 200000 -np 1 -ngl 99", LLAMA_CPP),
    ],
)  # fmt: skip
def test_what_only_the_planner_refuses_is_not_judged(args: str, image: str) -> None:
    found = said(args, image=image)
    assert AdviceVerdict.UNKNOWN is found.verdict
    assert ("memory" in about(found, Level.UNKNOWN), about(found, Level.MATTERS)) == (True, [])


def test_a_length_beyond_the_model_is_told_in_the_flags_own_words() -> None:
    found = said("meta-llama/Meta-Llama-3-8B-Instruct --max-model-len 16384", gpu="h100-sxm")
    assert AdviceVerdict.WOULD_NOT_FIT is found.verdict
    message = next(each.message for each in found.findings if each.about == "memory")
    assert "--max-model-len is 16,384 tokens" in message
    allowed = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    long = said("meta-llama/Meta-Llama-3-8B-Instruct --max-model-len 16384", env=allowed)
    assert AdviceVerdict.UNKNOWN is long.verdict


def test_no_graphs_leave_more_for_the_pool() -> None:
    with_graphs, eager = (
        held(said(f"{EIGHT_B} --max-model-len 4096 {flag}").now) for flag in ("", "--enforce-eager")
    )
    assert eager.kv.pool_tokens > with_graphs.kv.pool_tokens


@pytest.mark.parametrize(("release", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92)])  # fmt: skip
def test_what_nobody_wrote_is_the_releases_default(release: str, share: float) -> None:
    found = said(f"{EIGHT_B} --max-model-len 4096", image=f"vllm/vllm-openai:v{release}")
    assert share == held(found.now).gpu_memory_utilization
    row = next(row for row in found.settings if row.flag == "--gpu-memory-utilization")
    assert (f"{share:g}", None) == (row.now, row.written)
    assert "--gpu-memory-utilization" in about(found, Level.ADVICE)


# ---- findings ----------------------------------------------------------------------------------------


def test_more_sequences_than_fit_are_advice_and_matter_once_the_lengths_are_known() -> None:
    args = f"{EIGHT_B} --max-model-len 8192 --max-num-seqs 200"
    assert "--max-num-seqs" in about(said(args), Level.ADVICE)
    long, short = (
        Asked(lanes=(Lane("all", TokenQuantiles(p50, 2 * p50), TokenQuantiles(50, 100)),))
        for p50 in (2000, 60)
    )
    assert "--max-num-seqs" in about(said(args, asked=long), Level.MATTERS)
    of_short = said(args, asked=short)
    assert "--max-num-seqs" not in [found.about for found in of_short.findings]
    expected = held(of_short.now).concurrency.expected
    assert expected is not None
    assert expected >= 200


@pytest.mark.parametrize(
    ("release", "args", "flag"),
    [
        ("0.18.0", "--swap-space 4", "--swap-space"),
        ("0.10.2", "--shutdown-timeout 60", "--shutdown-timeout"),
        ("0.22.1", "--enforce-eager=true", "--enforce-eager"),
        ("0.22.1", "--max-num 5", "--max-num"),
        ("0.22.1", "extra-word", "extra-word"),
    ],
)
def test_what_the_release_refuses_to_start_with_matters(release: str, args: str, flag: str) -> None:
    found = said(f"{EIGHT_B} {args}", image=f"vllm/vllm-openai:v{release}")
    assert flag in about(found, Level.MATTERS)


def test_swap_space_was_a_flag_up_to_0_17() -> None:
    found = said(f"{EIGHT_B} --max-model-len 4096 --swap-space 4", image="vllm/vllm-openai:v0.17.1")
    assert "--swap-space" not in [each.about for each in found.findings]


@pytest.mark.parametrize(
    ("limit", "level"), [("8Gi", Level.MATTERS), (None, Level.ADVICE), ("64Gi", None)]
)
def test_a_memory_limit_below_what_loading_takes_matters(
    limit: str | None, level: Level | None
) -> None:
    limits = {"nvidia.com/gpu": 1} | ({"memory": limit} if limit else {})
    found = said(f"{EIGHT_B} --max-model-len 4096", resources={"limits": limits})
    levels = [each.level for each in found.findings if each.about == "resources.limits.memory"]
    assert ([] if level is None else [level]) == levels


def test_ranks_without_shared_memory_matter_and_one_rank_does_without() -> None:
    two, one = (
        said(f"{EIGHT_B} --max-model-len 4096 -tp {cards}", cards=cards, volumeMounts=[])
        for cards in (2, 1)
    )
    assert "/dev/shm" in about(two, Level.MATTERS)
    assert "/dev/shm" not in [each.about for each in one.findings]


def test_more_ranks_than_cards_matter_and_idle_cards_are_advice() -> None:
    assert "--tensor-parallel-size" in about(said(f"{EIGHT_B} -tp 2"), Level.MATTERS)
    assert "--tensor-parallel-size" in about(said(EIGHT_B, cards=2), Level.ADVICE)


def test_a_thin_margin_matters() -> None:
    found = said(f"{EIGHT_B} --max-model-len 4096 --gpu-memory-utilization 0.975")
    assert isinstance(found.now, Plan)
    assert "--gpu-memory-utilization" in about(found, Level.MATTERS)


@pytest.mark.parametrize(
    ("release", "env", "is_said"),
    [
        ("0.17.1", {}, False),
        ("0.19.0", {}, True),
        ("0.19.0", {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}, False),
        ("0.22.1", {}, False),
        ("0.22.1", {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}, True),
    ],
)
def test_graphs_come_on_top_of_the_share_where_the_profile_leaves_them_out(
    release: str, env: dict[str, str], is_said: bool
) -> None:
    args = f"{EIGHT_B} --max-model-len 4096 --gpu-memory-utilization 0.92"
    found = said(args, image=f"vllm/vllm-openai:v{release}", env=env)
    assert is_said is any("of graphs come on top" in each.message for each in found.findings)


def test_a_prompt_cache_without_end_matters() -> None:
    args = "-m /m/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 4096 -np 1 -ngl 99 --cache-ram -1"
    assert "--cache-ram" in about(said(args, image=LLAMA_CPP), Level.MATTERS)


def test_llama_server_without_a_number_of_layers_decides_at_load() -> None:
    args = "-m /m/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 4096 -np 1"
    assert "--n-gpu-layers" in about(said(args, image=LLAMA_CPP), Level.ADVICE)


def test_all_layers_of_a_70b_at_16k_do_not_fit_a_48_gb_card() -> None:
    args = "-m /m/Llama-3.3-70B-Instruct-Q6_K.gguf -c 16384 -np 1 -ngl 80"
    found = said(args, image=LLAMA_CPP, gpu="rtx-a6000")
    assert AdviceVerdict.WOULD_NOT_FIT is found.verdict
    layers = held(found.ours).gpu_layers
    assert layers is not None
    assert layers < 80


@pytest.mark.parametrize(
    ("budgets", "is_told"),
    [
        ([{"spec": {"selector": {"matchLabels": {"app": "chat"}}}}], False),
        ([{"spec": {"selector": {"matchLabels": {"app": "other"}}}}], True),
        ([], True),
        (None, False),
    ],
)
def test_a_missing_budget_is_told_only_where_somebody_looked(budgets: Any, is_told: bool) -> None:
    template = {
        "metadata": {"labels": {"app": "chat"}},
        "spec": {"containers": [{"image": VLLM, "args": [EIGHT_B]}]},
    }
    (workload,) = workloads([{"kind": "Deployment", "spec": {"template": template}}])
    found = advise(workload, Asked(gpu=card("l4"), budgets=budgets)).advice
    assert is_told is ("PodDisruptionBudget" in [each.about for each in found.findings])


# ---- unknown stays unknown ---------------------------------------------------------------------------


def test_without_a_card_nothing_is_planned_and_the_way_out_is_named() -> None:
    found = told(EIGHT_B, gpu=None)
    assert (None, None) == (found.advice.now, found.advice.ours)
    message = next(each.message for each in found.advice.findings if each.about == "gpu")
    assert "--gpu" in message
    assert isinstance(found.draft, str)


def test_a_model_that_nobody_knows_is_not_guessed() -> None:
    found = told("/models/something-of-ours --max-model-len 4096")
    assert (None, AdviceVerdict.UNKNOWN) == (found.advice.model.id, found.advice.verdict)
    assert isinstance(found.draft, str)
    assert "--model" in found.draft


def test_a_name_that_only_looks_like_a_model_is_said_to_be_a_guess() -> None:
    found = said("/models/Qwen3-8B --max-model-len 4096")
    assert "Qwen/Qwen3-8B" == found.model.id
    assert "model" in about(found, Level.UNKNOWN)
    sure = said("/models/Qwen3-8B --max-model-len 4096", asked=Asked(model="Qwen/Qwen3-8B"))
    assert [] == about(sure, Level.UNKNOWN)


def test_an_image_without_a_release_is_said_and_a_given_one_is_believed() -> None:
    latest = said(f"{EIGHT_B} --max-model-len 4096", image="vllm/vllm-openai:latest")
    assert (None, ["image"]) == (latest.release, about(latest, Level.UNKNOWN))
    asked = Asked(release="0.19.0")
    given = said(f"{EIGHT_B} --max-model-len 4096", image="vllm/vllm-openai:latest", asked=asked)
    assert (0.9, []) == (held(given.now).gpu_memory_utilization, about(given, Level.UNKNOWN))


def test_an_engine_that_is_none_of_ours_is_named() -> None:
    found = said("", image="ollama/ollama:0.11")
    assert None is found.engine
    assert "Ollama" in found.started_by


def test_the_only_type_of_a_cluster_is_taken_and_one_of_several_is_not() -> None:
    nodes = tuple(NodeGpus(node=name, gpu=card(name), count=1, free=0) for name in ("l4", "l40s"))
    one = said(EIGHT_B, gpu=None, asked=Asked(inventory=Inventory(nodes=nodes[:1])))
    assert ("NVIDIA-L4", "the only type in --facts") == (one.card.product, one.card.told_by)
    assert (
        None is said(EIGHT_B, gpu=None, asked=Asked(inventory=Inventory(nodes=nodes))).card.product
    )


# ---- the documented forms ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpu", "model", "verdict"),
    [
        ("vllm_docs.yaml", "l4", "mistralai/Mistral-7B-Instruct-v0.3", AdviceVerdict.FITS),
        ("production_stack.yaml", None, "meta-llama/Llama-3.3-70B-Instruct", AdviceVerdict.FITS),
        ("llama_cpp.yaml", None, "meta-llama/Llama-3.3-70B-Instruct", AdviceVerdict.FITS),
        ("kserve_service.yaml", None, "meta-llama/meta-llama-3-8b-instruct", AdviceVerdict.FITS),
        ("kserve_deployment.yaml", None, "meta-llama/meta-llama-3-8b-instruct", AdviceVerdict.FITS),
        ("kserve_llm.yaml", "l4", "Qwen/Qwen2.5-7B-Instruct", AdviceVerdict.FITS),
        ("kubeai_model.yaml", None, "Qwen/Qwen2.5-7B-Instruct", AdviceVerdict.FITS),
        ("kubeai_pod.yaml", None, "Qwen/Qwen2.5-7B-Instruct", AdviceVerdict.FITS),
        ("leader_worker_set.yaml", "h100-sxm", "meta-llama/Meta-Llama-3.1-405B-Instruct", AdviceVerdict.UNKNOWN),
    ],
)  # fmt: skip
def test_documented_manifests_are_read(
    name: str, gpu: str | None, model: str, verdict: AdviceVerdict
) -> None:
    (found,) = of_file(name, Asked(gpu=card(gpu) if gpu else None))
    assert (model, verdict) == (found.advice.model.id, found.advice.verdict)


def test_a_service_of_kserve_and_the_deployment_that_it_makes_are_told_the_same() -> None:
    one, other = (of_file(f"kserve_{name}.yaml")[0].advice for name in ("service", "deployment"))
    assert (one.now, one.ours, one.settings) == (other.now, other.ours, other.settings)


def test_gpustacks_two_command_lines() -> None:
    vllm, box = (found.advice for found in of_file("gpustack.yaml"))
    assert ("Qwen/Qwen3-8B", 2) == (vllm.model.id, held(vllm.now).cards)
    assert ["/dev/shm"] == about(vllm, Level.MATTERS)
    assert ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Q4_K_M") == (
        box.model.id,
        box.model.quantization,
    )
    assert AdviceVerdict.UNKNOWN is box.verdict  # --embeddings
    assert held(box.now).line is not None


def test_kubeais_shortened_flag_is_read_and_its_switch_with_a_value_matters() -> None:
    (found,) = of_file("kubeai_pod.yaml")
    assert "--enable-chunked-prefill" in about(found.advice, Level.MATTERS)
    assert "--max-num-batched-token" in about(found.advice, Level.ADVICE)
    row = next(row for row in found.advice.settings if row.flag == "--max-num-batched-tokens")
    assert "8192" == row.now


# ---- the manifest ------------------------------------------------------------------------------------


def test_a_manifest_carries_over_what_plimsoll_does_not_pin_and_names_the_rest() -> None:
    (found,) = of_file("production_stack.yaml")
    assert not isinstance(found.draft, str)
    spec = found.draft.body["spec"]
    engine = spec["engines"]["vllm"]
    assert ["--enable-auto-tool-choice", "--tool-call-parser", "llama3_json"] == engine["extraArgs"]
    assert ["HF_HOME", "PROMETHEUS_MULTIPROC_DIR"] == [each["name"] for each in engine["env"]]
    assert {"name": "stack-secrets", "key": "hf_token_llama70b"} == spec["worker"]["hfTokenSecret"]
    assert {"product": "NVIDIA-A100-SXM4-80GB", "perWorker": 4} == spec["pools"][0]["gpu"]
    assert (2, {"maxModelLen": 32768}) == (spec["replicas"], spec["limits"])
    assert ["POD_IP", "LMCACHE_LOG_LEVEL"] == [
        left.removeprefix("variable ").partition(":")[0] for left in found.draft.left_out
    ]


def test_code_from_outside_the_image_is_left_out_and_named() -> None:
    found = told(f"{EIGHT_B} --trust-remote-code")
    assert not isinstance(found.draft, str)
    assert "extraArgs" not in found.draft.body["spec"]["engines"]["vllm"]
    assert "--trust-remote-code" in found.draft.left_out[0]
    assert isinstance(found.advice.ours, Plan)


def test_another_server_is_replaced_by_the_engines_own_image_and_that_is_named() -> None:
    (found,) = of_file("kserve_deployment.yaml")
    assert not isinstance(found.draft, str)
    assert found.draft.body["spec"]["engines"]["vllm"]["image"].startswith("vllm/vllm-openai:v")
    assert "huggingfaceserver" in found.draft.left_out[0]


def test_a_file_on_a_volume_keeps_its_place() -> None:
    (found,) = of_file("llama_cpp.yaml")
    assert not isinstance(found.draft, str)
    uri = "hostPath:///srv/gguf/Llama-3.3-70B-Instruct-Q4_K_M.gguf"
    assert {"uri": uri, "quantization": "Q4_K_M"} == found.draft.body["spec"]["model"]["gguf"]
