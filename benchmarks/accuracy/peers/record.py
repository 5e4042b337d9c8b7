"""`make accuracy-record`: ask the peers that cannot be dependencies, and write down what they say.

    python -m benchmarks.accuracy.peers.record [the files' options of benchmarks.accuracy]

Each runs in an environment of its own, made once in the cache folder with uv (or venv and pip). Without
options only the answers to the committed files' questions stay; with options, earlier ones are kept too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "e2e"))
from benchmarks.accuracy.cases import SOURCES, CasesError, questions
from benchmarks.accuracy.peers import aiconfigurator, gpustack
from benchmarks.accuracy.peers.peer import Quantity, Question
from benchmarks.accuracy.peers.recorded import FOLDER, key_of, read

from controlplane import cache

HERE: Final = Path(__file__).resolve()
Asked = dict[str, Any] | str


@dataclass(frozen=True)
class Recorded:
    """A peer to run."""

    name: str
    package: str
    about: str
    asks: dict[Quantity, Callable[[Question], Asked]]
    shown: tuple[str, ...]
    """What of a question stands beside its answer, for readers."""


PEERS: Final = (
    Recorded(
        aiconfigurator.NAME,
        f"aiconfigurator-core=={aiconfigurator.VERSION}",
        "aiconfigurator-core's own classes, backend vllm: KV bytes of one sequence (bytes), tokens in a "
        "KV memory (tokens), activation, runtime and communication bytes of a card (other_bytes)",
        {
            Quantity.REQUEST: aiconfigurator.asked_request,
            Quantity.CONCURRENCY: aiconfigurator.asked_request,
            Quantity.STARTS: aiconfigurator.asked_request,
            Quantity.TOKENS: aiconfigurator.asked_tokens,
            Quantity.POOL: aiconfigurator.asked_pool,
        },
        ("kind", "tp", "pp", "kv_dtype", "max_model_len", "kv_memory_bytes", "system", "tokens"),
    ),
    Recorded(
        gpustack.NAME,
        f"gpustack=={gpustack.VERSION}",
        "gpustack.policies.utils.estimate_model_vram of a local model of that size, all cards together",
        dict.fromkeys((Quantity.STARTS, Quantity.POOL), gpustack.asked_claim),
        ("weights_bytes",),
    ),
)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for source in SOURCES:
        parser.add_argument(f"--{source.option}", type=Path, metavar="FILE", help=source.words)
    given = vars(parser.parse_args(words))
    named = {source: given[source.option.replace("-", "_")] for source in SOURCES}
    is_whole = not any(named.values())
    asked: list[Question] = []
    for source, path in named.items():
        if path is None and not is_whole:
            continue
        try:
            asked += questions(source, path or source.default)
        except CasesError as missing:
            print(f"accuracy: {missing}", file=sys.stderr)
    for peer in PEERS:
        print(
            f"accuracy: {peer.package}: {record(peer, asked, is_whole)} new answers",
            file=sys.stderr,
        )
    return 0


def record(peer: Recorded, asked: Iterable[Question], is_whole: bool) -> int:
    """Write the peer's answers; the number of those that are new."""
    wanted = {key_of(put): (question, put) for question, put in puts(peer, asked)}
    before: dict[str, Any] = dict(read(peer.name).get("answers", {}))
    known = {key: each for key, each in before.items() if not is_whole or key in wanted}
    new = {key: wanted[key] for key in wanted.keys() - known.keys()}
    if not new and known == before:
        return 0
    answers = run(peer, {key: each for key, (_, each) in new.items()}) if new else {}
    for key, answer in answers.items():
        question, each = new[key]
        shown = {name: each[name] for name in peer.shown if each.get(name) is not None}
        known[key] = {"model": question.model, **shown, **answer}
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{peer.name}.json").write_text(spelt(peer, known), encoding="utf-8")
    return len(new)


def puts(peer: Recorded, asked: Iterable[Question]) -> Iterator[tuple[Question, dict[str, Any]]]:
    """What the peer is asked for each question; a start without a stated KV memory needs its pool too."""
    for question in asked:
        quantities = [question.quantity]
        if question.quantity is Quantity.STARTS and question.kv_memory_bytes is None:
            quantities.append(Quantity.POOL)
        for ask in (peer.asks[each] for each in quantities if each in peer.asks):
            if not isinstance(put := ask(question), str):
                yield question, put


def spelt(peer: Recorded, known: dict[str, Any]) -> str:
    """The record as JSON, one answer a line, models together."""
    head = {
        "about": peer.about,
        "version": peer.package,
        "command": "make accuracy-record",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }
    ordered = sorted(known.items(), key=lambda item: (json.dumps(item[1]), item[0]))
    lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(each)}" for key, each in ordered)
    opened = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{opened},\n  "answers": {{\n{lines}\n  }}\n}}\n'


def run(peer: Recorded, asked: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Its answers, by key."""
    script = HERE.with_name(f"record_{peer.name}.py")
    ran = subprocess.run(
        [environment(peer.package) / "bin" / "python", "-P", script],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answers: dict[str, dict[str, Any]] = json.loads(ran.stdout)
    return answers


def environment(package: str) -> Path:
    """The folder of an environment with the package; made when the cache does not have it."""
    recipe = cache.key_of(package, sys.version)
    return cache.made_once("peers", recipe, lambda folder: install(package, folder))


def install(package: str, folder: Path) -> None:
    """With uv where it is, else with the interpreter's own venv and pip."""
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        made = ["uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]
        commands = [made, ["uv", "pip", "install", "--quiet", "--python", str(python), package]]
    else:
        venv.create(folder, with_pip=True)
        commands = [[str(python), "-m", "pip", "install", "--quiet", package]]
    for command in commands:
        subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
