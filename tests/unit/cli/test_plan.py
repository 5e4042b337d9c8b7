"""`plimsoll plan`, from its arguments to its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.plan.records import Plan, Refusal

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
EDGE = str(EXAMPLES / "edge-assistant.yaml")
MIXED = str(EXAMPLES / "mixed-fleet.yaml")

Capture = pytest.CaptureFixture[str]


def node(name: str, product: str, mib: int, cards: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.memory": str(mib),
                "nvidia.com/gpu.count": str(cards),
            },
        },
        "status": {"allocatable": {"nvidia.com/gpu": str(cards), "memory": "512Gi"}},
    }


def dump(tmp_path: Path, *items: dict[str, Any]) -> str:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return str(path)


def changed(tmp_path: Path, file: str, **spec: Any) -> str:
    raw = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    raw["spec"] |= spec
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(raw))
    return str(path)


def test_what_fits_exits_0(capsys: Capture) -> None:
    assert main(["plan", "-f", MIXED]) == Exit.FITS
    assert capsys.readouterr().out.endswith("\n2 pools: 2 fit\n")


def test_what_is_refused_exits_3_and_says_what_would_fit(capsys: Capture) -> None:
    assert main(["plan", "-f", EDGE]) == Exit.REFUSED
    said = capsys.readouterr().out
    assert "Refused: KvBudgetExceeded" in said
    assert "(limits.concurrency: " in said
    assert "(limits.maxModelLen: " in said


def test_bad_input_exits_2_and_names_field_value_and_way_out(
    capsys: Capture, tmp_path: Path
) -> None:
    path = changed(tmp_path, EDGE, limits={"maxModelLength": 8192})
    assert main(["plan", "-f", path]) == Exit.BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path} cannot be read:" in err
    assert "spec.limits.maxModelLength" in err
    assert "maxModelLen" in err


def test_json_comes_back_as_the_records_it_was(capsys: Capture) -> None:
    main(["plan", "-f", MIXED, "-f", EDGE, "-o", "json"])
    answers = json.loads(capsys.readouterr().out)
    assert [(a["deployment"], a["pool"], a["fits"]) for a in answers] == [
        ("inference/llama-70b", "a6000-tp4", True),
        ("inference/llama-70b", "a6000-single", True),
        ("inference/plant-assistant", "rtx4090", False),
    ]
    for answer in answers:
        kind = Plan if answer["fits"] else Refusal
        assert kind.model_validate(answer["outcome"]).to_json() == answer["outcome"]


def test_yaml_and_json_say_the_same(capsys: Capture) -> None:
    main(["plan", "-f", MIXED, "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main(["plan", "-f", MIXED, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_pool_leaves_the_others_out(capsys: Capture) -> None:
    main(["plan", "-f", MIXED, "--pool", "a6000-single", "-o", "json"])
    assert [a["pool"] for a in json.loads(capsys.readouterr().out)] == ["a6000-single"]


def test_a_pool_that_is_not_there_is_bad_input(capsys: Capture) -> None:
    assert main(["plan", "-f", MIXED, "--pool", "h100"]) == Exit.BAD_INPUT
    said = capsys.readouterr().err
    assert "there is no pool 'h100'; there are a6000-tp4, a6000-single" in said


def test_gpu_tries_another_card_by_any_of_its_names(capsys: Capture) -> None:
    for name in ("l40s", "NVIDIA-L40S", "NVIDIA L40S"):
        assert main(["plan", "-f", EDGE, "--gpu", name, "-o", "json"]) == Exit.FITS
        (answer,) = json.loads(capsys.readouterr().out)
        assert answer["outcome"]["gpuProduct"] == "NVIDIA-L40S"


def test_a_slip_in_a_card_gets_the_nearest_names(capsys: Capture) -> None:
    assert main(["plan", "-f", EDGE, "--gpu", "rtx-4900"]) == Exit.BAD_INPUT
    assert "'rtx-4900'" in (said := capsys.readouterr().err)
    assert "rtx-4090" in said


def test_all_gpus_puts_the_largest_pool_first_and_refusals_last(capsys: Capture) -> None:
    assert main(["plan", "-f", EDGE, "--all-gpus", "-o", "json"]) == Exit.FITS
    answers = json.loads(capsys.readouterr().out)
    fits = [a["fits"] for a in answers]
    assert fits == sorted(fits, reverse=True)
    tokens = [a["outcome"]["kv"]["poolTokens"] for a in answers if a["fits"]]
    assert tokens == sorted(tokens, reverse=True)
    assert len(answers) == len({a["gpu"] for a in answers})


def test_all_gpus_as_a_table_says_why_a_card_is_refused(capsys: Capture) -> None:
    main(["plan", "-f", EDGE, "--all-gpus"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("inference/plant-assistant, pool rtx4090: ")
    (row,) = [line for line in lines if line.split()[:1] == ["NVIDIA-GeForce-RTX-4090"]]
    assert row.split()[-1] == "KvBudgetExceeded"


def test_all_gpus_exits_3_where_no_card_fits(capsys: Capture, tmp_path: Path) -> None:
    path = changed(tmp_path, EDGE, limits={"maxModelLen": 8192, "concurrency": 60000})
    assert main(["plan", "-f", path, "--all-gpus"]) == Exit.REFUSED


def test_without_pools_all_gpus_chooses_engine_and_cards(capsys: Capture, tmp_path: Path) -> None:
    path = changed(tmp_path, MIXED, pools=[])
    assert main(["plan", "-f", path, "--all-gpus", "-o", "json"]) == Exit.FITS
    by_card = {a["gpu"]: a["outcome"] for a in json.loads(capsys.readouterr().out)}
    assert by_card["NVIDIA-H200"]["engine"] == "vllm"
    assert by_card["NVIDIA-H200"]["cards"] > 1
    assert any(note.startswith("not chosen: ") for note in by_card["NVIDIA-H200"]["notes"])
    assert by_card["Tesla-T4"]["engine"] == "llamaCpp"
    assert by_card["NVIDIA-GB10"]["cards"] == 1


def test_all_gpus_says_what_binds(capsys: Capture, tmp_path: Path) -> None:
    main(["plan", "-f", changed(tmp_path, MIXED, pools=[]), "--all-gpus"])
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if "binding limit" in line)
    assert head.split()[:4] == ["GPU", "type", "GiB", "cards"]
    (row,) = [line for line in lines if line.split()[:1] == ["NVIDIA-H100-80GB-HBM3"]]
    assert row.endswith("KV cache")
    (row,) = [line for line in lines if line.split()[:1] == ["Tesla-T4"]]
    assert row.endswith("layers fit")


METRICS = str(Path(__file__).parents[2] / "data" / "vllm_metrics.txt")


def test_lengths_come_from_an_engines_own_metrics(capsys: Capture) -> None:
    args = ["plan", "-f", MIXED, "--pool", "a6000-tp4", "-o", "json"]
    assert main(args) == Exit.FITS
    (by_file,) = json.loads(capsys.readouterr().out)
    assert main([*args, "--lengths", METRICS]) == Exit.FITS
    (measured,) = json.loads(capsys.readouterr().out)
    assert measured["outcome"]["maxModelLen"] < by_file["outcome"]["maxModelLen"]
    assert (
        measured["outcome"]["concurrency"]["expected"]
        > by_file["outcome"]["concurrency"]["expected"]
    )
    notes = " ".join(measured["outcome"]["notes"])
    assert "8 requests that the engine counted, too few to show a tail" in notes


def test_a_page_without_lengths_is_bad_input(capsys: Capture, tmp_path: Path) -> None:
    page = tmp_path / "metrics.txt"
    page.write_text("# nothing\n")
    assert main(["plan", "-f", MIXED, "--lengths", str(page)]) == Exit.BAD_INPUT
    said = capsys.readouterr().err
    assert f"--lengths: {page}: vllm:request_prompt_tokens is not in it" in said


def test_one_services_lengths_are_not_given_to_two(capsys: Capture) -> None:
    words = ["plan", "-f", MIXED, "-f", EDGE, "--lengths", METRICS]
    assert main(words) == Exit.BAD_INPUT
    assert "--lengths: tells of one service" in capsys.readouterr().err


def test_the_pools_occupancy_is_shown(capsys: Capture) -> None:
    main(["plan", "-f", MIXED, "--pool", "a6000-tp4"])
    said = " ".join(capsys.readouterr().out.split())
    assert "of the pool) on average, at most" in said
    assert "in all but one of a thousand moments" in said


def test_cards_come_from_a_dump_of_nodes(capsys: Capture, tmp_path: Path) -> None:
    nodes = dump(tmp_path, node("a", "NVIDIA-GeForce-RTX-4090", 24564, 2))
    assert main(["plan", "-f", EDGE, "--facts", nodes, "-o", "json"]) == Exit.REFUSED
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["gpu"] == "NVIDIA-GeForce-RTX-4090"


def test_without_pools_every_card_of_the_dump_gets_one(capsys: Capture, tmp_path: Path) -> None:
    raw = yaml.safe_load(Path(EDGE).read_text(encoding="utf-8"))
    path = changed(tmp_path, EDGE, pools=[], limits={"maxModelLen": 8192})
    assert raw["spec"]["pools"]
    nodes = dump(tmp_path, node("a", "NVIDIA-L4", 23034, 2), node("b", "NVIDIA-H200", 143771, 8))
    assert main(["plan", "-f", path, "--facts", nodes, "-o", "json"]) == Exit.FITS
    assert [a["gpu"] for a in json.loads(capsys.readouterr().out)] == ["NVIDIA-H200", "NVIDIA-L4"]


def test_a_gpunode_alone_is_enough_of_a_dump(capsys: Capture, tmp_path: Path) -> None:
    card = {
        "uuid": "GPU-1",
        "product": "NVIDIA-L40S",
        "totalBytes": 46068 * 2**20,
        "reservedBytes": 600 * 2**20,
        "computeCapability": "8.9",
    }
    gpu_node = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": "a"},
        "status": {"cards": [card]},
    }
    path = changed(tmp_path, EDGE, pools=[])
    assert main(["plan", "-f", path, "--facts", dump(tmp_path, gpu_node), "-o", "json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["gpu"] == "NVIDIA-L40S"
    assert {p["source"] for p in answer["outcome"]["provenance"]} == {"Agent", "Catalogue"}


def test_a_dump_without_nodes_is_bad_input(capsys: Capture) -> None:
    assert main(["plan", "-f", EDGE, "--facts", EDGE]) == Exit.BAD_INPUT
    assert "no Node or GPUNode in it, only InferenceDeployment" in capsys.readouterr().err


def test_without_pools_and_without_cards_the_ways_out_are_named(
    capsys: Capture, tmp_path: Path
) -> None:
    assert main(["plan", "-f", changed(tmp_path, EDGE, pools=[])]) == Exit.BAD_INPUT
    said = capsys.readouterr().err
    assert "spec.pools" in said
    assert "--gpu TYPE, --all-gpus or --facts FILE" in said


def test_a_file_without_an_inference_deployment_says_what_it_holds(
    capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    assert main(["plan", "-f", str(path)]) == Exit.BAD_INPUT
    assert "no InferenceDeployment in it, only Service" in capsys.readouterr().err


def test_facts_in_a_config_map_of_the_same_file_are_read(capsys: Capture, tmp_path: Path) -> None:
    raw = yaml.safe_load(Path(EDGE).read_text(encoding="utf-8"))
    raw["spec"]["model"] |= {"id": None, "facts": {"configMap": {"name": "facts"}}}
    del raw["spec"]["model"]["id"]
    facts = {
        "model": {
            "id": "ours",
            "architecture": "LlamaForCausalLM",
            "layers": 16,
            "hiddenSize": 2048,
            "intermediateSize": 8192,
            "attentionHeads": 32,
            "vocabSize": 128256,
            "maxPositionEmbeddings": 8192,
            "kvGroups": [
                {"kind": "Full", "layers": 16, "kvHeads": 8, "keyDim": 64, "valueDim": 64}
            ],
            "weights": {"totalBytes": 2471645608},
            "provenance": {"source": "ModelFiles", "confidence": "Exact"},
        }
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "facts", "namespace": raw["metadata"]["namespace"]},
        "data": {"facts.yaml": yaml.safe_dump(facts)},
    }
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump_all([raw, config_map]))
    assert main(["plan", "-f", str(path), "-o", "json"]) == Exit.FITS
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["outcome"]["kv"]["bytesPerTokenPerReplica"] == 2 * 16 * 8 * 64 * 2
