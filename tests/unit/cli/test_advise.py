"""`plimsoll advise`, from its arguments to its exit code."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_box import StandIn, kubeconfig, serving
from plimsoll.api.advise_records import Advice
from plimsoll.catalog.models import find_model
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.cluster.kinds import DEPLOYMENT
from plimsoll.facts.model import ModelFacts
from plimsoll.plan.records import Plan

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "advise"
STACK = str(DATA / "production_stack.yaml")
GPUSTACK = str(DATA / "gpustack.yaml")
DOCS = str(DATA / "vllm_docs.yaml")

Capture = pytest.CaptureFixture[str]


def test_what_matters_exits_3_and_what_does_not_exits_0(capsys: Capture) -> None:
    assert main(["advise", "-f", STACK]) == Exit.FITS
    assert capsys.readouterr().out.endswith("\n1 workload: nothing that matters was found\n")
    assert main(["advise", "-f", GPUSTACK]) == Exit.REFUSED
    out = capsys.readouterr().out
    assert out.endswith("\n2 workloads: 1 with something that matters\n")
    assert "  This matters\n  - /dev/shm: 2 ranks" in out


def test_the_page_shows_verdict_ledger_lines_and_findings(capsys: Capture) -> None:
    main(["advise", "-f", STACK])
    out = capsys.readouterr().out
    for words in (
        "Deployment llm/stack-llama70b-deployment-vllm, container vllm, made by vLLM production-stack",
        "  engine       vLLM 0.17.1, started by vllm serve\n",
        "  The settings as they are fit\n",
        "  * --max-num-seqs ",
        "  + --max-num-batched-tokens ",
        "    --max-model-len ",
        "  whole card         80.00       80.00  NVIDIA-A100-SXM4-80GB\n",
        "  - readinessProbe: is not there",
    ):
        assert words in out


def test_json_comes_back_as_the_records_it_was(capsys: Capture) -> None:
    main(["advise", "-f", GPUSTACK, "-f", STACK, "-o", "json"])
    found = [Advice.model_validate(each) for each in json.loads(capsys.readouterr().out)]
    assert ["Qwen/Qwen3-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"] == [
        each.model.id for each in found
    ]  # fmt: skip
    assert all(isinstance(each.now, Plan) for each in found)
    main(["advise", "-f", GPUSTACK, "-f", STACK, "-o", "yaml"])
    assert found == [
        Advice.model_validate(each) for each in yaml.safe_load(capsys.readouterr().out)
    ]


def test_a_manifest_can_be_planned_and_names_what_is_not_in_it(
    capsys: Capture, tmp_path: Path
) -> None:
    assert main(["advise", "-f", STACK, "-o", "manifest"]) == Exit.FITS
    out = capsys.readouterr().out
    assert out.startswith(
        "# Made from Deployment llm/stack-llama70b-deployment-vllm; nothing was changed"
    )
    assert "# variable POD_IP: only values and keys of Secrets are carried over\n" in out
    path = tmp_path / "infd.yaml"
    path.write_text(out, encoding="utf-8")
    assert main(["plan", "-f", str(path)]) == Exit.FITS


def test_what_plimsoll_renders_is_advised_to_be_left_as_it_is(
    capsys: Capture, tmp_path: Path
) -> None:
    raw = yaml.safe_load((ROOT / "docs/examples/mixed-fleet.yaml").read_text(encoding="utf-8"))
    raw["spec"]["limits"] = {"maxModelLen": 8192, "guarantee": "WorstCase"}
    raw["spec"].pop("traffic", None)
    spec = tmp_path / "infd.yaml"
    spec.write_text(yaml.safe_dump(raw), encoding="utf-8")
    assert main(["render", "-f", str(spec)]) == Exit.FITS
    own = tmp_path / "own.yaml"
    own.write_text(capsys.readouterr().out, encoding="utf-8")
    model = ["--model", raw["spec"]["model"]["id"]]
    assert main(["advise", "-f", str(own), *model, "-o", "json"]) == Exit.FITS
    found = [Advice.model_validate(each) for each in json.loads(capsys.readouterr().out)]
    assert ["Fits", "Fits"] == [each.verdict.value for each in found]
    other = [row.flag for each in found for row in each.settings if row.change.value == "Other"]
    assert [] == other


def test_cards_and_facts_of_the_model_are_told_apart(capsys: Capture, tmp_path: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "a",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-L4",
                "nvidia.com/gpu.memory": "23034",
                "nvidia.com/gpu.count": "1",
            },
        },
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }  # fmt: skip
    cards = tmp_path / "nodes.json"
    cards.write_text(json.dumps(node), encoding="utf-8")
    facts = tmp_path / "facts.yaml"
    known = find_model("mistralai/Mistral-7B-Instruct-v0.3")
    assert isinstance(known, ModelFacts)
    heavier = known.weights.model_copy(update={"total_bytes": 2 * known.weights.total_bytes})
    told = known.model_copy(update={"weights": heavier})
    facts.write_text(yaml.safe_dump({"model": told.to_json()}), encoding="utf-8")
    assert main(["advise", "-f", DOCS, "--facts", str(cards)]) == Exit.FITS
    assert "NVIDIA-L4 x 1 (by the only type in --facts)" in capsys.readouterr().out
    assert (
        main(["advise", "-f", DOCS, "--facts", str(cards), "--facts", str(facts)]) == Exit.REFUSED
    )
    assert "WeightsDoNotFit" in capsys.readouterr().out


def test_counted_lengths_tell_how_many_are_expected_to_hold(capsys: Capture) -> None:
    metrics = str(ROOT / "tests" / "data" / "vllm_metrics.txt")
    assert main(["advise", "-f", DOCS, "--gpu", "l4", "--lengths", metrics]) == Exit.REFUSED
    assert "expected for the lengths counted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["advise"], "say what to look at"),
        (["advise", "-f", "nowhere.yaml"], "nowhere.yaml"),
        (["advise", "-f", str(ROOT / "docs/examples/edge-assistant.yaml")], "only InferenceDeployment"),
        (["advise", "-f", STACK, "--gpu", "rtx-9999"], "--gpu: 'rtx-9999'"),
        (["advise", "-f", STACK, "--release", "newest"], "--release: 'newest'"),
        (["advise", "-f", STACK, "--facts", STACK], "no Node or GPUNode"),
        (["advise", "chat"], "is not KIND/NAME"),
        (["advise", "secret/chat"], "is not KIND/NAME"),
        (["advise", "-f", DOCS, "-o", "manifest"], "say it with --gpu"),
    ],
)  # fmt: skip
def test_bad_input_exits_2_and_names_the_way_out(
    words: list[str], said: str, capsys: Capture
) -> None:
    assert main(words) == Exit.BAD_INPUT
    out, err = capsys.readouterr()
    assert "" == out
    assert said in err


# ---- a cluster ---------------------------------------------------------------------------------------


def asked_of(tmp_path: Path, *words: str) -> tuple[int, StandIn]:
    """The command beside a stand-in for the API server that has one Deployment."""
    stand_in = StandIn()
    body: dict[str, Any] = next(iter(yaml.safe_load_all(Path(STACK).read_text(encoding="utf-8"))))
    stand_in.put(DEPLOYMENT, body)

    async def run() -> int:
        async with serving(stand_in):
            path = tmp_path / "kubeconfig"
            path.write_text(kubeconfig(stand_in), encoding="utf-8")
            command = ["advise", *words, "--kubeconfig", str(path)]
            return await asyncio.to_thread(main, command)

    return asyncio.run(run()), stand_in


def test_a_deployment_of_a_cluster_is_read_by_get_alone(capsys: Capture, tmp_path: Path) -> None:
    code, box = asked_of(
        tmp_path, "deploy/stack-llama70b-deployment-vllm", "-n", "llm", "-o", "json"
    )
    assert Exit.FITS == code
    (of_cluster,) = json.loads(capsys.readouterr().out)
    main(["advise", "-f", STACK, "-o", "json"])
    (of_file,) = json.loads(capsys.readouterr().out)
    assert of_file == of_cluster
    assert [
        ("GET", "/apis/apps/v1/namespaces/llm/deployments/stack-llama70b-deployment-vllm")
    ] == box.requests


def test_a_name_that_is_not_there_is_said_with_its_namespace(
    capsys: Capture, tmp_path: Path
) -> None:
    code, _ = asked_of(tmp_path, "deployment/gone", "-n", "llm")
    assert Exit.BAD_INPUT == code
    assert "deployment/gone: there is none in namespace llm" in capsys.readouterr().err


# ---- kubectl -----------------------------------------------------------------------------------------


def test_kubectl_finds_the_plugin_by_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["scripts"]["kubectl-plimsoll"].partition(":")
    assert getattr(import_module(module), name) is main


def test_as_a_plugin_it_names_itself_as_it_is_called(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-plimsoll"])
    main(["advise", "--help"])
    assert capsys.readouterr().out.startswith("usage: kubectl plimsoll advise ")
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/plimsoll"])
    main(["advise", "--help"])
    assert capsys.readouterr().out.startswith("usage: plimsoll advise ")
