"""Lines of shell, read without running them."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.engines.shell import commands_of

KSERVE = """
          export MODEL=${MODEL_DIR}
          if [[ -z ${MODEL_DIR} ]] && [[ ! -z ${MODEL_ID} ]]
          then
            export MODEL=${MODEL_ID}
          fi

          vllm serve ${MODEL} --host 0.0.0.0 --port 8000 $@
"""


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("vllm serve a/b --max-model-len 8", ("vllm", "serve", "a/b", "--max-model-len", "8")),
        ("exec vllm serve a/b", ("vllm", "serve", "a/b")),
        ("vllm serve a/b \\\n  --port 1", ("vllm", "serve", "a/b", "--port", "1")),
        ("vllm serve 'a b' \"c d\" e\\ f", ("vllm", "serve", "a b", "c d", "e f")),
        ("vllm serve a # --port 1", ("vllm", "serve", "a")),
        ("vllm serve a 2>&1 > /log", ("vllm", "serve", "a")),
        ("A=1; B=$A vllm serve $A", ("vllm", "serve", "1")),
        ("vllm serve '$MODEL'", ("vllm", "serve", "$MODEL")),
        ('vllm serve "$MODEL"', ("vllm", "serve", "org/name")),
        ("vllm serve ${NOTHING:-a/b}", ("vllm", "serve", "a/b")),
        ("vllm serve ${MODEL:-a/b}", ("vllm", "serve", "org/name")),
        ("vllm serve $EXTRA", ("vllm", "serve", "--port", "1")),
        ('vllm serve "$EXTRA"', ("vllm", "serve", "--port 1")),
        ("vllm serve a --c '{\"k\": \"v\"}'", ("vllm", "serve", "a", "--c", '{"k": "v"}')),
        ('eval "vllm serve a $EXTRA"', ("vllm", "serve", "a", "--port", "1")),
        ("vllm serve $EMPTY a ''", ("vllm", "serve", "a", "")),
    ],
)  # fmt: skip
def test_a_line_becomes_the_words_that_a_shell_makes_of_it(
    script: str, command: tuple[str, ...]
) -> None:
    env = {"MODEL": "org/name", "EXTRA": "--port 1", "EMPTY": ""}
    assert command == commands_of(script, env)[-1]


def test_what_only_running_would_tell_stays_one_word_as_written() -> None:
    words = commands_of("vllm serve a -tp $(nvidia-smi -L | wc -l) -dp `nproc --all` $UNSET", {})[0]
    assert ("-tp", "$(nvidia-smi -L | wc -l)", "-dp", "$(nproc --all)", "$UNSET") == words[3:]


def test_every_command_of_a_line_is_told_in_its_order() -> None:
    found = commands_of("cd /models && pip install x; (vllm serve a | tee log) & wait", {})
    assert ["cd", "pip", "vllm", "tee", "wait"] == [command[0] for command in found]


@pytest.mark.parametrize(
    ("env", "model"),
    [({"MODEL_DIR": "/mnt", "MODEL_ID": "a/b"}, "/mnt"), ({"MODEL_DIR": "", "MODEL_ID": "a/b"}, "a/b")],
)  # fmt: skip
def test_an_assignment_inside_a_condition_fills_what_was_empty(
    env: dict[str, str], model: str
) -> None:
    found = commands_of(KSERVE, env, ("--max-model-len", "8k"))
    expected = f"vllm serve {model} --host 0.0.0.0 --port 8000 --max-model-len 8k"
    assert tuple(expected.split()) == found[-1]


PIECE = st.one_of(
    st.text("abz-_./=:,0", min_size=1, max_size=5),
    st.text("ab \"$\\#;|&<>(){}[]'", max_size=5).map(shlex.quote),
    st.sampled_from(['"a b"', '"$ONE"', "$ONE", "${ONE}", "$TWO", '"$TWO"', "a\\ b", '"\\"x\\""', "a'b'c\"d\""]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(words=st.lists(PIECE, min_size=1, max_size=6))
@pytest.mark.skipif(shutil.which("sh") is None, reason="a shell judges")
def test_words_are_a_real_shells(words: list[str]) -> None:
    env = {"ONE": "1", "TWO": "x  --y"}
    line = "printf '%s\\0' " + " ".join(word for word in words if not word.startswith("="))
    ran = subprocess.run(
        ["sh", "-c", line], env={**env, "PATH": "/usr/bin:/bin"}, capture_output=True, check=False
    )
    expected = tuple(ran.stdout.decode().split("\0")[:-1])
    if len(words) and expected != ("",):
        assert expected == commands_of(line, env)[0][2:]
