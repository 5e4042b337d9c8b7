from __future__ import annotations

import pytest

from plimsoll.engines.base import EngineName
from plimsoll.render.source import SourceKind, parse_source, source_problem


def test_a_claim_is_mounted_read_only_below_models() -> None:
    source = parse_source("pvc://models/teams/a/Llama-3.3-70B-Instruct")
    assert source.model == "/models/teams/a/Llama-3.3-70B-Instruct"
    assert source.mount_path == "/models"
    assert source.volume == {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}


@pytest.mark.parametrize("uri", ["pvc://models", "pvc://models/"])
def test_a_claim_may_be_the_model_itself(uri: str) -> None:
    assert parse_source(uri).model == "/models"


def test_a_host_folder_is_mounted_under_its_own_name() -> None:
    source = parse_source("hostPath:///srv/models/Meta-Llama-3-8B-Instruct/")
    assert source.model == "/models/Meta-Llama-3-8B-Instruct"
    assert source.mount_path == "/models/Meta-Llama-3-8B-Instruct"
    assert source.volume == {
        "hostPath": {"path": "/srv/models/Meta-Llama-3-8B-Instruct", "type": "Directory"}
    }


def test_a_host_gguf_brings_its_folder_so_that_split_files_are_found() -> None:
    source = parse_source("hostPath:///srv/gguf/70b-00001-of-00002.gguf")
    assert source.model == "/models/70b-00001-of-00002.gguf"
    assert source.mount_path == "/models"
    assert source.volume == {"hostPath": {"path": "/srv/gguf", "type": "Directory"}}


def test_an_image_is_a_volume_and_the_fragment_a_path_in_it() -> None:
    source = parse_source("oci://registry.example/models/gemma:1@sha256:ab#/files/gemma.gguf")
    assert source.model == "/models/files/gemma.gguf"
    assert source.volume == {
        "image": {
            "reference": "registry.example/models/gemma:1@sha256:ab",
            "pullPolicy": "IfNotPresent",
        }
    }


def test_a_hub_model_needs_no_volume_and_keeps_its_revision() -> None:
    source = parse_source("hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b")
    assert SourceKind.HUB is source.kind
    assert (
        source.model,
        source.revision,
        source.file,
    ) == ("meta-llama/Llama-3.3-70B-Instruct", "6f6073b", None)
    assert source.volume is None
    assert source.mount_path is None


def test_a_hub_address_may_name_a_file() -> None:
    source = parse_source("hf://unsloth/gemma-GGUF/q4/gemma-Q4_K_M.gguf")
    assert (source.model, source.file) == ("unsloth/gemma-GGUF", "q4/gemma-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("uri", "way_out"),
    [
        ("s3://bucket/model", "hf://org/name[@revision]"),
        ("/srv/models/x", "hostPath:///folder"),
        ("hf://only-one-part", "write hf://org/name"),
        ("pvc://Models/x", "lower-case"),
        ("pvc://models/../other", "write the plain path"),
        ("pvc://models//x", "write the plain path"),
        ("hostPath://srv/models", "three slashes"),
        ("hostPath:///", "folder of its own"),
        ("hostPath:///model.gguf", "folder of its own"),
        ("hostPath:///srv/./x", "write the plain path"),
        ("oci://", "write oci://image:tag"),
        ("oci://image:1#/../etc", "write the plain path"),
    ],
)
def test_a_bad_address_is_named_with_the_way_out(uri: str, way_out: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is judged
        parse_source(uri)
    assert uri in str(caught.value)
    assert way_out in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "engine", "words"),
    [
        ("hf://org/name/file.gguf", EngineName.VLLM, "write hf://org/name"),
        ("hf://org/name", EngineName.LLAMA_CPP, "one GGUF file"),
        ("pvc://models/folder", EngineName.LLAMA_CPP, "one GGUF file"),
        ("hf://org/name@v1/file.gguf", EngineName.LLAMA_CPP, "leave @revision out"),
    ],
)
def test_what_an_engine_cannot_load_is_said(uri: str, engine: EngineName, words: str) -> None:
    problem = source_problem(parse_source(uri), engine)
    assert problem is not None
    assert problem.startswith(uri)
    assert words in problem


@pytest.mark.parametrize(
    ("uri", "engine"),
    [
        ("hf://org/name@v1", EngineName.VLLM),
        ("pvc://models/folder", EngineName.VLLM),
        ("hf://org/name/file.gguf", EngineName.LLAMA_CPP),
        ("oci://image:1#/file.gguf", EngineName.LLAMA_CPP),
    ],
)
def test_what_an_engine_can_load_is_no_problem(uri: str, engine: EngineName) -> None:
    assert source_problem(parse_source(uri), engine) is None
