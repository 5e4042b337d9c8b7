"""`plimsoll probe retrieval` judges servers whose answers are known: sound ones, forgetful ones, and none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from plimsoll.api.kv_gate_records import Probed, records_in
from plimsoll.cli.main import main
from plimsoll.diagnose.retrieval import register
from plimsoll.facts.retrieval import Answers
from reader_box import ReaderBox, tokens
from stand_ins.corrupting import Corrupting

SMALL = ("--lengths", "400,800", "--trials", "80", "--quiet")
Out = pytest.CaptureFixture[str]


def probe(*words: str) -> int:
    """The command's exit code."""
    return main(["probe", "retrieval", *words])


def test_a_sound_server_passes_alone_and_against_another(capsys: Out) -> None:
    with ReaderBox() as one, ReaderBox(tokenize="llama") as other:
        assert 0 == probe("--url", one.url, *SMALL)
        assert "Passed: 80 of 80 numbers came back exact (100%)" in capsys.readouterr().out
        assert 0 == probe("--url", one.url, "--against", other.url, *SMALL)
        out = capsys.readouterr().out
        assert "80 of 80 numbers came back exact, 80 at 16 bit (0 lost, 0 won)" in out
        prompts = [
            [b["prompt"] for p, b in s.asked if p == "/v1/completions"] for s in (one, other)
        ]
        assert prompts[0][-80:] == prompts[1]  # the very same was asked


def test_a_server_that_corrupts_digits_fails(capsys: Out) -> None:
    with ReaderBox() as sound, Corrupting(sound.url, every=4) as broken:
        assert 3 == probe("--url", broken.url, "--against", sound.url, *SMALL)
        assert "Failed: 60 of 80 numbers" in capsys.readouterr().out
        assert broken.corrupted >= 20


def test_a_baseline_is_kept_and_asked_again_word_for_word(tmp_path: Path, capsys: Out) -> None:
    kept = tmp_path / "sixteen.json"
    with ReaderBox() as sound:
        assert 0 == probe("--url", sound.url, "--save", str(kept), *SMALL)
    with ReaderBox(tokenize="none", forgets=lambda answer: answer % 5 == 0) as broken:
        assert 3 == probe("--url", broken.url, "--baseline", str(kept), "--quiet", "-o", "json")
        answers = Answers.model_validate_json(kept.read_text())
        wanted = register(answers.sheet, 0)
        assert any(body.get("prompt", "").startswith(wanted) for _, body in broken.asked)
    report = json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))
    assert (80, 64, 16) == (report["baselineExact"], report["exact"], report["lost"])


@pytest.mark.parametrize("tokenize", ["vllm", "llama", "none"])
def test_contexts_are_as_long_as_asked_in_the_servers_tokens(tokenize: str) -> None:
    with ReaderBox(tokenize=tokenize) as server:
        probe("--url", server.url, "--lengths", "1600,6400", "--trials", "80", "--quiet")
        asked = [body["prompt"] for path, body in server.asked if path == "/v1/completions"][-80:]
    lengths = [tokens(text) for text in asked]
    for wanted in (1600, 6400):
        near = [length for length in lengths if abs(length / wanted - 1) < 0.5]
        assert 40 == len(near)
        assert all(0.94 * wanted <= length <= wanted - 16 for length in near)


def test_a_chat_is_held_where_there_are_no_completions(capsys: Out) -> None:
    with ReaderBox(has_completions=False) as server:
        assert 0 == probe("--url", f"{server.url}/v1", *SMALL)
        assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize"} == {
            path for path, _ in server.asked
        }


def test_lengths_that_do_not_fit_are_named_and_nothing_has_passed(capsys: Out) -> None:
    with ReaderBox(holds=900) as server:
        assert 3 == probe("--url", server.url, "--length", "3200", "--trials", "80", "--quiet")
        out = capsys.readouterr().out
        assert "Inconclusive: contexts of 1,600, 3,200 tokens do not fit" in out
        assert 2 == probe("--url", server.url, "--lengths", "1600,3200", "--quiet")
        assert "none of 1600, 3200 fits in the 900 tokens" in capsys.readouterr().err


def test_progress_is_told_on_stderr_and_the_output_stays_clean(capsys: Out) -> None:
    with ReaderBox() as server:
        probe("--url", server.url, "--lengths", "400", "--trials", "20", "-o", "json")
    said = capsys.readouterr()
    assert "asking: 20 of 20" in said.err
    assert 20 == json.loads(said.out)["trials"]


def test_the_key_goes_to_its_own_server_and_is_never_told(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("sesame-1\n")
    monkeypatch.setenv("PLIMSOLL_AGAINST_API_KEY", "sesame-2")
    with ReaderBox(key="sesame-1") as one, ReaderBox(key="sesame-2") as other:
        options = ("--url", one.url, "--against", other.url, *SMALL)
        assert 0 == probe(*options, "--key-file", str(file))
        assert 2 == probe(*options)
    said = capsys.readouterr()
    assert "is an API key missing" in said.err
    assert "sesame" not in said.err + said.out


def test_a_record_for_the_operator_is_a_config_map(capsys: Out) -> None:
    what = ("--source", "hf://o/m", "--engine", "vllm", "--release", "0.22.1", "--dtype", "fp8")
    with ReaderBox() as one, ReaderBox() as other:
        options = ("--url", one.url, "--against", other.url, *SMALL)
        assert 0 == probe(*options, "--config-map", "chat-retrieval", "-n", "team", *what)
    printed = yaml.safe_load(capsys.readouterr().out)
    assert {"name": "chat-retrieval", "namespace": "team"} == printed["metadata"]
    (record,) = records_in(printed)
    expected = Probed(source="hf://o/m", engine="vllm", release="0.22.1", dtype="fp8")
    assert expected == record.probed
    assert ("Passed", 800) == (record.report.verdict.value, record.report.longest_tokens)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--length", "0"], "--length 0"),
        (["--lengths", "a,b"], "--lengths a,b"),
        (["--lengths", "400", "--length", "400"], "give one of the two"),
        (["--depths", "2.5"], "--depths 2.5"),
        (["--depths", "99"], "--depths 99"),
        (["--trials", "0"], "--trials 0"),
        (["--trials", "20000"], "ask for more depths"),
        (["--tolerance", "5"], "--tolerance 5"),
        (["--baseline", "nowhere.json"], "nowhere.json"),
        (["--baseline", "b.json", "--length", "9"], "leave --length and --lengths out"),
        (["--key-file", "nowhere.key"], "nowhere.key"),
        (["--config-map", "chat"], "says nothing without --source"),
        (["--config-map", "Chat"], "is not a name"),
        (["--lengths", "20"], "too few for 10 numbers"),
    ],
)
def test_bad_input_names_option_value_and_way_out(
    words: list[str], message: str, capsys: Out
) -> None:
    with ReaderBox() as server:
        assert 2 == probe("--url", server.url, "--quiet", *words)
    assert message in capsys.readouterr().err


def test_a_server_that_is_not_there_is_bad_input(capsys: Out) -> None:
    assert 2 == probe("--url", "http://127.0.0.1:9", "--quiet")
    assert "cannot be reached" in capsys.readouterr().err
    assert 2 == probe("--url", "nonsense", "--quiet")
    assert "nonsense" in capsys.readouterr().err


def test_one_of_several_models_must_be_named(capsys: Out) -> None:
    with ReaderBox(models=("a", "b")) as server:
        assert 2 == probe("--url", server.url, *SMALL)
        assert "(a, b); name one by --model" in capsys.readouterr().err
        assert 0 == probe("--url", server.url, "--model", "b", *SMALL)
