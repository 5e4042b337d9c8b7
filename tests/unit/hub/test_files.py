"""Reading headers from a hub, by ranges of files: what is fetched, and what is said when it cannot be."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
import yaml

from gguf_writer import gguf
from hub_box import COMMIT, Hub
from plimsoll.api.v1alpha1 import InlineFacts
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.hub.files import FIRST_STEP_BYTES, HubFiles, Repository

Capture = pytest.CaptureFixture[str]
NAME = "org/Tiny-Llama"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
SHAPES = {
    "model.embed_tokens.weight": [100, 64],
    "model.layers.0.mlp.up_proj.weight": [128, 64],
    "model.layers.1.mlp.up_proj.weight": [128, 64],
    "model.norm.weight": [64],
}


def safetensors(shapes: Mapping[str, list[int]]) -> bytes:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def header_bytes(file: bytes) -> int:
    return 8 + int(struct.unpack("<Q", file[:8])[0])


def split_model() -> dict[str, bytes]:
    """A Llama of two layers in two files with an index."""
    names = list(SHAPES)
    parts = {"a.safetensors": names[:2], "b.safetensors": names[2:]}
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{file: safetensors({n: SHAPES[n] for n in held}) for file, held in parts.items()},
    }


def gguf_file(words: int = 40_000) -> tuple[bytes, int]:
    """A GGUF file of one block with a vocabulary, and where its weights begin."""
    tensors = [
        ("token_embd.weight", (64, 100), "F16"),
        ("blk.0.attn_k.weight", (64, 32), "F16"),
        ("blk.0.ffn_up.weight", (64, 128 * 512), "F16"),
        ("output_norm.weight", (64,), "F32"),
    ]
    head = gguf(
        {
            "general.architecture": "llama",
            "general.file_type": 1,
            "llama.block_count": 1,
            "llama.context_length": 2048,
            "llama.embedding_length": 64,
            "llama.feed_forward_length": 128,
            "llama.attention.head_count": 4,
            "llama.attention.head_count_kv": 2,
            "tokenizer.ggml.tokens": [f"word{number}" for number in range(words)],
        },
        tensors,
    )
    data = 2 * (64 * 100 + 64 * 32 + 64 * 128 * 512) + 4 * 64
    begins = len(head) + -len(head) % 32
    return head + bytes(begins - len(head) + data), begins


@pytest.fixture
def at_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Point the library, which reads its environment once, at a box."""

    def point(hub: Hub, *, token: str = "", offline: bool = False) -> Hub:
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.HfApi, "__init__", _of_endpoint(hub.url))
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setenv("HF_TOKEN", token)
        return hub

    yield point
    huggingface_hub.close_session()


def _of_endpoint(url: str) -> Any:
    made = huggingface_hub.HfApi.__init__

    def init(self: Any, **given: Any) -> None:
        made(self, **{"endpoint": url, **given})

    return init


def test_a_repository_gives_facts_and_the_commit_they_are_of(at_hub: Any, capsys: Capture) -> None:
    with Hub({NAME: split_model()}) as hub:
        at_hub(hub)
        assert Exit.FITS == main(["facts", f"hf://{NAME}@main"])
    facts = InlineFacts.model_validate(yaml.safe_load(capsys.readouterr().out))
    assert facts.model is not None
    assert NAME == facts.model.id
    assert 2 * (100 * 64 + 2 * 128 * 64 + 64) == facts.model.weights.total_bytes
    assert (
        f"config.json and the headers of 2 safetensors files of hf://{NAME}@{COMMIT}"
        == facts.model.provenance.detail
    )


def test_of_safetensors_the_headers_and_not_one_byte_of_weights_are_fetched(at_hub: Any) -> None:
    files = split_model()
    with Hub({NAME: files}) as hub:
        at_hub(hub)
        main(["facts", f"hf://{NAME}"])
        for name in ("a.safetensors", "b.safetensors"):
            assert header_bytes(files[name]) == hub.sent[name]


def test_of_a_gguf_file_the_header_is_fetched_and_at_most_as_much_again(
    at_hub: Any, capsys: Capture
) -> None:
    content, begins = gguf_file()
    with Hub({NAME: {"tiny-F16.gguf": content}}) as hub:
        at_hub(hub)
        assert Exit.FITS == main(["facts", f"hf://{NAME}", "--gguf", "tiny-F16.gguf"])
        assert begins - 32 <= hub.sent["tiny-F16.gguf"] <= 2 * begins + FIRST_STEP_BYTES
        assert hub.sent["tiny-F16.gguf"] < len(content) / 2
    facts = InlineFacts.model_validate(yaml.safe_load(capsys.readouterr().out))
    assert facts.gguf is not None
    assert "F16" == facts.gguf.quantization
    assert COMMIT in facts.gguf.provenance.detail


def test_an_address_of_a_file_names_it_too(at_hub: Any) -> None:
    content, _ = gguf_file(words=10)
    with Hub({NAME: {"a-F16.gguf": content, "b-F16.gguf": content}}) as hub:
        at_hub(hub)
        assert Exit.FITS == main(["facts", f"hf://{NAME}/b-F16.gguf"])
        assert 0 == hub.sent["a-F16.gguf"]


def test_several_gguf_files_are_listed_instead_of_guessed(at_hub: Any, capsys: Capture) -> None:
    content, _ = gguf_file(words=10)
    with Hub({NAME: {"a-F16.gguf": content, "b-F16.gguf": content}}) as hub:
        at_hub(hub)
        assert Exit.BAD_INPUT == main(["facts", f"hf://{NAME}"])
        assert Exit.BAD_INPUT == main(["facts", f"hf://{NAME}", "--gguf", "c.gguf"])
    said = capsys.readouterr().err
    assert "several .gguf files in it; name one: a-F16.gguf, b-F16.gguf" in said
    assert "no file 'c.gguf' in it; GGUF files there: a-F16.gguf, b-F16.gguf" in said


def test_a_redirect_is_followed_and_the_token_stays_at_home(at_hub: Any) -> None:
    with Hub({NAME: split_model()}, gated={NAME: "hf_ours"}, elsewhere=True) as hub:
        at_hub(hub, token="hf_ours")
        assert Exit.FITS == main(["facts", f"hf://{NAME}"])
        went = {token for path, token in hub.asked if path.startswith("/elsewhere/")}
        stayed = {token for path, token in hub.asked if not path.startswith("/elsewhere/")}
    assert {""} == went
    assert {"Bearer hf_ours"} == stayed


def test_a_hub_without_ranges_is_left_after_the_first_bytes(at_hub: Any, capsys: Capture) -> None:
    content, _ = gguf_file()
    big = {"tiny.gguf": content + bytes(64 << 20)}
    with Hub({NAME: big}, serves_ranges=False) as hub:
        at_hub(hub)
        assert Exit.BAD_INPUT == main(["facts", f"hf://{NAME}"])
        assert hub.sent["tiny.gguf"] < 32 << 20
    said = capsys.readouterr().err
    assert "tiny.gguf: 127.0.0.1 answers with the whole file instead of a part of it" in said
    assert "HF_ENDPOINT" in said


@pytest.mark.parametrize(
    ("path", "token", "says"),
    [
        ("org/none", "", "there is no such repository, or it is private"),
        (f"{NAME}@v9", "", "there is no revision 'v9'"),
        ("org/gated", "", "the repository is gated"),
        ("org/gated", "hf_ours", "the repository is gated"),
    ],
)
def test_what_the_hub_refuses_is_said_plainly(
    at_hub: Any, capsys: Capture, path: str, token: str, says: str
) -> None:
    with Hub(dict.fromkeys((NAME, "org/gated"), split_model()), gated={"org/gated": "t"}) as hub:
        at_hub(hub, token=token)
        assert Exit.BAD_INPUT == main(["facts", f"hf://{path}"])
    said = capsys.readouterr().err
    assert f"hf://{path}: {says}" in said
    assert "Traceback" not in said


def test_offline_nobody_is_asked(at_hub: Any, capsys: Capture) -> None:
    with Hub({NAME: split_model()}) as hub:
        at_hub(hub, offline=True)
        assert Exit.BAD_INPUT == main(["facts", f"hf://{NAME}"])
        assert [] == hub.asked
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err


def test_a_hub_that_is_away_is_named(at_hub: Any, capsys: Capture) -> None:
    with Hub({}) as hub:
        at_hub(hub)
    assert Exit.BAD_INPUT == main(["facts", f"hf://{NAME}"])
    assert f"no answer from {hub.url}" in capsys.readouterr().err


def test_a_missing_shard_and_a_cut_one_are_refused_as_on_disk(at_hub: Any, capsys: Capture) -> None:
    files = split_model()
    lost = {name: held for name, held in files.items() if name != "b.safetensors"}
    cut = files | {"b.safetensors": files["b.safetensors"][:-1]}
    with Hub({"org/lost": lost, "org/cut": cut}) as hub:
        at_hub(hub)
        assert Exit.REFUSED == main(["facts", "hf://org/lost"])
        assert Exit.REFUSED == main(["facts", "hf://org/cut"])
    said = capsys.readouterr().err
    assert "are not there: b.safetensors; finish the download" in said
    assert f"hf://org/cut@{COMMIT}/b.safetensors: it has" in said
    assert "it was cut off" in said


def test_a_file_is_read_forward_in_any_steps(at_hub: Any) -> None:
    content = bytes(range(256)) * 1024
    with Hub({NAME: {"x.gguf": content}}) as hub:
        at_hub(hub)
        stream = HubFiles(Repository(NAME)).open("x.gguf")
        pieces = [stream.read(size) for size in (1, 7, 100_000, 3, 70_000, 10**9)]
    assert content == b"".join(pieces)
    assert len(content) == stream.tell()
    assert len(content) == hub.sent["x.gguf"]


def test_endpoint_token_and_offline_come_from_the_environment() -> None:
    """In a process of its own, where nothing was put in the library's place."""
    with Hub({NAME: split_model()}, gated={NAME: "hf_ours"}) as hub:
        environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_ours"}
        command = [str(Path(sys.executable).with_name("plimsoll")), "facts", f"hf://{NAME}"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (0, "") == (ran.returncode, ran.stderr)
        before = len(hub.asked)
        offline = environment | {"HF_HUB_OFFLINE": "1"}
        ran = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
        assert Exit.BAD_INPUT == ran.returncode
        assert before == len(hub.asked)


def test_a_plan_and_a_folder_do_without_the_library(tmp_path: Path) -> None:
    for name, content in split_model().items():
        (tmp_path / name).write_bytes(content)
    script = (
        "import sys; from plimsoll.cli.main import main; "
        f"code = main(['facts', {str(tmp_path)!r}]); "
        "print(code, sorted({'huggingface_hub', 'httpx2', 'kubernetes'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "0 []\n" == ran.stderr
