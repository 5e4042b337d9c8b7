"""Which object asks Plimsoll for a worker that is real, and what can that worker be asked?

The model is Gemma 3 270M as a GGUF file, the engine Debian's llama-server in a pod on a real node. The
node's card is a number in its status: the plan is that card's plan, and llama-server, which finds no
device, holds the same caches in host memory.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from controlplane import fleet
from controlplane.cluster import ControlPlane, Manifest
from controlplane.fetch import LLAMA_IMAGE
from controlplane.node import RealNode
from patience import Patience, stretched

CARD: Final = fleet.L40S
"""A type that no node of the fake fleet has, so nothing else lands on the real one."""
NODE: Final = "l40s-0"
NAME: Final = "gemma"
POOL: Final = "real"
MODEL_NAME: Final = "gemma-3-270m"
MODEL_ID: Final = "google/gemma-3-270m"
RELEASE: Final = "0.7.0"
"""As Debian's package calls itself; the table of flags knows it as b11669."""
PORT: Final = 8000
THREADS: Final = "1"
"""llama-server's threads spin while they wait for each other: where cores are shared, two take 15 times
as long as one (measured here: 31 s against 2 s for a short answer, beside other work)."""
SLOTS: Final = 2
SLOT_TOKENS: Final = 4096
MIB: Final = 1 << 20

SHOWN_HOW: Final = (
    {"role": "user", "content": "What is the capital of Italy?"},
    {"role": "assistant", "content": "The capital of Italy is Rome."},
)
END_OF_TURN: Final = "<|im_end|>"
"""Of the template that llama-server takes where a file has none."""

_KV_BUFFER: Final = re.compile(r"KV buffer size =\s+([0-9.]+) MiB")
"""One line for each cache and device, at verbosity 4 (llama.cpp b11434 and b11669)."""


def node_for(cluster: ControlPlane) -> RealNode:
    """The real node, with one card of a type of its own; still to be started."""
    return RealNode(cluster, name=NODE, labels=fleet.card_labels(CARD, count=1), gpus=1)


def facts_of(file: Path) -> Any:
    """What `plimsoll facts` reads from the file's header."""
    plimsoll = Path(sys.executable).with_name("plimsoll")
    command = (plimsoll, "facts", file, "--id", MODEL_ID)
    return yaml.safe_load(subprocess.run(command, capture_output=True, check=True).stdout)


def deployment(namespace: str, model: Path) -> Manifest:
    """What a person would write for it."""
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "model": {
                "name": MODEL_NAME,
                "id": MODEL_ID,
                "gguf": {"uri": f"hostPath://{model}"},
                "facts": {"inline": facts_of(model)},
            },
            "pools": [{"name": POOL, "gpu": {"product": CARD.product}, "engine": "llamaCpp"}],
            "engines": {
                "llamaCpp": {
                    "image": LLAMA_IMAGE,
                    "release": RELEASE,
                    "env": [{"name": "LLAMA_ARG_THREADS", "value": THREADS}],
                }
            },
            "limits": {"maxModelLen": SLOT_TOKENS, "concurrency": SLOTS},
        },
    }


def pinned(plan: Mapping[str, Any]) -> list[str]:
    """A plan's flags, as `status` has it, in the form of a container's args."""
    return [
        word
        for flag in plan["flags"]
        for word in (flag["name"], flag.get("value"))
        if word is not None
    ]


def kv_bytes(plan: Mapping[str, Any]) -> int:
    """What a plan's ledger gives to the KV cache of one card."""
    return sum(line["bytes"] for line in plan["ledger"] if line["owner"] == "KvCache")


def kv_bytes_told(log: str) -> int:
    """What llama-server says that it allocated for keys and values, all caches together."""
    return round(sum(float(mib) for mib in _KV_BUFFER.findall(log)) * MIB)


@dataclass(frozen=True)
class Answer:
    """What the worker said to one message, and what it cost."""

    text: str
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True)
class Worker:
    """A pod that serves."""

    pod: Manifest

    @property
    def args(self) -> list[str]:
        """The arguments that it was started with."""
        return list(self.pod["spec"]["containers"][0]["args"])

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its endpoints."""
        return self._ask("GET", path)

    def chat(self, message: str, *, most_tokens: int = 24) -> Answer:
        """What it says to one message; always the same, for nothing is left to chance.

        The model is a base model that was never taught to chat: one exchange before shows it how.
        """
        messages = (*SHOWN_HOW, {"role": "user", "content": message})
        question = {
            "model": MODEL_NAME,
            "messages": messages,
            "max_tokens": most_tokens,
            "stop": [END_OF_TURN],
            "temperature": 0,
            "seed": 1,
        }
        status, text = self._ask("POST", "/v1/chat/completions", question)
        if status != http.client.OK:
            raise RuntimeError(f"the worker answered {status}: {text}")
        said = json.loads(text)
        usage = said["usage"]
        return Answer(
            text=said["choices"][0]["message"]["content"].strip(),
            prompt_tokens=usage["prompt_tokens"],
            tokens=usage["completion_tokens"],
        )

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(
            self.pod["status"]["podIP"], PORT, timeout=stretched(Patience.CHAT_ANSWER)
        )
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
