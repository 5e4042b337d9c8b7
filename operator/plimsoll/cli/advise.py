"""`plimsoll advise`: does what runs already fit, and what would Plimsoll pin for it?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plimsoll.api.advise import Asked, Told, advise
from plimsoll.api.advise_workload import KINDS, workloads
from plimsoll.cli.documents import Document, read_documents, read_text
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.inputs import inventory_in
from plimsoll.cli.offline import catalogue_card
from plimsoll.cli.output import Form, add_output, as_text, as_yaml
from plimsoll.cli.text import page_of
from plimsoll.facts.gpu import Inventory
from plimsoll.plan.records import Lane

EPILOG: Final = """\
examples:
  plimsoll advise -f deployment.yaml --gpu l40s        a file, for this card
  helm template stack vllm/vllm-stack -f values.yaml | plimsoll advise -f - --gpu a100-80gb
  kubectl get deployments,statefulsets -A -o json | plimsoll advise -f - --gpu h100-sxm
  plimsoll advise deployment/chat -n inference         one that runs, read with your own kubeconfig
  kubectl plimsoll advise deployment/chat --facts <(kubectl get nodes -o json)
  plimsoll advise -f chat.yaml --lengths <(curl -s vllm:8000/metrics)    for the requests that came
  plimsoll advise -f chat.yaml -o manifest > infd.yaml                   an InferenceDeployment to start from
  plimsoll advise -f chat.yaml -o json | jq '.[].findings[] | select(.level == "Matters")'

Reads Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, Pods, LeaderWorkerSets, KServe's
InferenceService and LLMInferenceService (with a ServingRuntime beside it, if you give one), and
KubeAI's Model: command, args, env, shell lines, image, cards, node labels, memory, /dev/shm, probes.
vLLM and llama.cpp in every spelling that their parsers take.

It never writes, to a cluster or anywhere else. Of a cluster it gets the one object that you name.
What cannot be told stays unknown, and the output says what to add.

exit codes:
  0  nothing that matters was found
  2  bad input: the message on stderr names the field, the value and the way out
  3  something matters: it would not fit, not start, or die under the load that it allows
"""
_FORMS: Final = (Form.TABLE.value, Form.JSON.value, Form.YAML.value, "manifest")
_FACTS_KEYS: Final = frozenset({"model", "gguf"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll advise`."""
    parser.add_argument(
        "object",
        metavar="KIND/NAME",
        nargs="*",
        help="of the cluster, e.g. deployment/chat, statefulset/llm, isvc/llama, pod/model-x",
    )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        default=[],
        help="YAML or JSON with workloads; - reads standard input; may be given several times",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="default",
        help="of KIND/NAME; default when left out",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="credentials for KIND/NAME; $KUBECONFIG or ~/.kube/config when left out",
    )
    parser.add_argument(
        "--gpu",
        metavar="TYPE",
        help="the card of the catalogue that it runs on, e.g. rtx-4090, NVIDIA-L40S, h100-sxm/1g.10gb",
    )
    parser.add_argument(
        "--model",
        metavar="ID",
        help="public identity of the model where the manifest holds a path only, e.g. Qwen/Qwen3-8B",
    )
    parser.add_argument(
        "--release",
        metavar="RELEASE",
        help="the engine's release where the image's tag does not tell it, e.g. 0.22.1 or b11434",
    )
    parser.add_argument(
        "--facts",
        metavar="FILE",
        action="append",
        default=[],
        help="cards (`kubectl get nodes,gpunodes -o json`) or facts of the model (`plimsoll facts FOLDER`); "
        "which of the two is seen from the file",
    )
    parser.add_argument(
        "--lengths",
        metavar="FILE",
        action="append",
        default=[],
        help="lengths of requests from a page of a running vLLM, `curl HOST:8000/metrics`: how many "
        "sequences are expected to hold",
    )
    add_output(
        parser,
        says="table (default), json, yaml, or manifest: an InferenceDeployment to start from",
        forms=_FORMS,
    )


def run(arguments: argparse.Namespace) -> int:
    """Look, say, and tell by the exit code whether something matters."""
    documents = _documents(arguments)
    found = workloads([document.body for document in documents])
    if not found:
        kinds = ", ".join(sorted({d.kind or "an object without kind" for d in documents}))
        raise BadInputError(
            f"there is no workload in it, only {kinds}; give one of {', '.join(KINDS)}"
        )
    asked = _asked(arguments, documents)
    try:
        told = tuple(advise(workload, asked) for workload in found)
    except ValueError as error:
        raise BadInputError(f"--release: {arguments.release!r}: {error}") from error
    _print(told, arguments)
    return Exit.REFUSED if any(each.advice.matters for each in told) else Exit.FITS


def _documents(arguments: argparse.Namespace) -> tuple[Document, ...]:
    if not arguments.object and not arguments.filename:
        raise BadInputError(
            "say what to look at: -f FILE, or KIND/NAME of the cluster, e.g. deployment/chat"
        )
    documents = read_documents(arguments.filename) if arguments.filename else ()
    if arguments.object:
        from plimsoll.cli.advise_cluster import fetch  # noqa: PLC0415 - a second to import

        got = fetch(arguments.object, arguments.namespace, arguments.kubeconfig)
        documents = (*documents, *(Document(name, body) for name, body in got))
    return documents


def _asked(arguments: argparse.Namespace, documents: Sequence[Document]) -> Asked:
    facts, inventory = _facts(arguments.facts)
    budgets = [d.body for d in documents if d.kind == "PodDisruptionBudget"]
    return Asked(
        model=arguments.model,
        gpu=None if arguments.gpu is None else catalogue_card(arguments.gpu),
        release=arguments.release,
        facts=facts,
        inventory=inventory,
        lanes=_lanes(arguments.lengths),
        budgets=None if arguments.object else budgets,
    )


def _facts(paths: Sequence[str]) -> tuple[Mapping[str, Any] | None, Inventory]:
    """Facts of the model, and cards, told apart by what stands in each file. Raises BadInputError."""
    facts: Mapping[str, Any] | None = None
    cards: list[Document] = []
    for path in paths:
        documents = read_documents([path])
        first = documents[0]
        if first.kind == "ConfigMap":
            text = next(iter((first.body.get("data") or {}).values()), "")
            facts = _model_facts(_parsed(str(text), first.where), first.where)
        elif not first.kind and _FACTS_KEYS.intersection(first.body):
            facts = _model_facts(first.body, first.where)
        else:
            cards += documents
    return facts, inventory_in(cards, " ".join(paths)) if cards else Inventory()


def _parsed(text: str, where: str) -> Any:
    import yaml  # noqa: PLC0415 - only for a ConfigMap

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"--facts: {where}: not YAML: {error}") from error


def _model_facts(body: Any, where: str) -> Mapping[str, Any]:
    from plimsoll.api.model_spec import InlineFacts  # noqa: PLC0415 - only for facts

    try:
        return InlineFacts.model_validate(body).to_json()
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise BadInputError(
            f"--facts: {where} cannot be read as facts of a model ({first}); make it with `plimsoll facts FOLDER`"
        ) from error


def _lanes(paths: Sequence[str]) -> tuple[Lane, ...]:
    if not paths:
        return ()
    from plimsoll.facts.lengths import read_lengths  # noqa: PLC0415 - only for a page

    try:
        seen = read_lengths("\n".join(read_text(path) for path in paths))
    except ValueError as error:
        raise BadInputError(f"--lengths: {' '.join(paths)}: {error}") from error
    return (Lane(name="measured", prompt_tokens=seen.prompts, output_tokens=seen.answers),)


def _print(told: Sequence[Told], arguments: argparse.Namespace) -> None:
    if arguments.output == "manifest":
        sys.stdout.write(_manifests(told))
        return
    form = Form(arguments.output)
    if form is not Form.TABLE:
        sys.stdout.write(as_text([each.advice.to_json() for each in told], form))
        return
    from plimsoll.cli.advise_report import report  # noqa: PLC0415 - not for JSON

    page = page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
    sys.stdout.write(report([each.advice for each in told], page=page))


def _manifests(told: Sequence[Told]) -> str:
    """The manifests as YAML documents, with what is not in them as comments. Raises BadInputError."""
    blocks = []
    for each in told:
        if isinstance(each.draft, str):
            print(f"{each.advice.object}: no manifest: {each.draft}", file=sys.stderr)
            continue
        lines = [
            f"Made from {each.advice.object}; nothing was changed there.",
            *each.draft.left_out,
        ]
        comments = "".join(f"# {' '.join(line.split())}\n" for line in lines)
        blocks.append(comments + as_yaml(each.draft.body))
    if not blocks:
        reasons = "; ".join(f"{each.advice.object}: {each.draft}" for each in told)
        raise BadInputError(f"-o manifest: {reasons}")
    return "---\n".join(blocks)
