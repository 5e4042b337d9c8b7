"""Which InferenceDeployments, with which cards in reach, do the arguments of a command name?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from plimsoll.api.manifest import KIND, DeploymentManifest, read
from plimsoll.cli.answers import Answer
from plimsoll.cli.documents import Document, read_documents, read_text
from plimsoll.cli.exits import BadInputError
from plimsoll.cli.offline import (
    PRODUCT_LABEL,
    Case,
    answer,
    catalogue_card,
    catalogue_inventory,
    on_card,
)
from plimsoll.facts.gpu import Inventory
from plimsoll.plan.records import Lane

if TYPE_CHECKING:
    from plimsoll.catalog.profiles import GpuProfile

WHOLE_CARD: Final = "nvidia.com/gpu"
"""NVIDIA/k8s-device-plugin: the resource under which a node offers whole cards."""


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """-f, --pool, --gpu and --facts, the same for plan, explain and render."""
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        required=True,
        help="YAML or JSON with one or more InferenceDeployments; - reads standard input; "
        "may be given several times",
    )
    parser.add_argument("--pool", metavar="NAME", help="only the pool of this name")
    parser.add_argument(
        "--gpu",
        metavar="TYPE",
        help="plan for this card of the catalogue instead, e.g. rtx-4090, NVIDIA-L40S, "
        "h100-sxm/1g.10gb",
    )
    parser.add_argument(
        "--facts",
        metavar="FILE",
        action="append",
        default=[],
        help="take the cards from this dump: `kubectl get nodes,gpunodes,resourceslices -o json`, or "
        "only some of these, as it is",
    )
    parser.add_argument(
        "--gpu-types",
        metavar="FILE",
        help="your own table of cards, as under gpuTypes in the chart's values; it is believed first",
    )


def add_lengths_argument(parser: argparse.ArgumentParser) -> None:
    """--lengths, for plan and explain: what the operator would do is in the file alone."""
    parser.add_argument(
        "--lengths",
        metavar="FILE",
        action="append",
        default=[],
        help="take the lengths of requests from this page of a running vLLM, `curl HOST:8000/metrics`, "
        "in place of spec.traffic; may be given once per engine",
    )


def with_lengths(cases: Sequence[Case], arguments: argparse.Namespace) -> tuple[Case, ...]:
    """The cases with the lengths that --lengths names. Raises BadInputError."""
    paths: list[str] = arguments.lengths
    if not paths:
        return tuple(cases)
    if len(cases) > 1:
        names = ", ".join(case.title for case in cases)
        raise BadInputError(
            f"--lengths: tells of one service, and -f names {len(cases)} ({names}); give them one by one"
        )
    from plimsoll.facts.lengths import read_lengths  # noqa: PLC0415 - only for a page

    try:
        seen = read_lengths("\n".join(read_text(path) for path in paths))
    except ValueError as error:
        raise BadInputError(f"--lengths: {' '.join(paths)}: {error}") from error
    lane = Lane(name="measured", prompt_tokens=seen.prompts, output_tokens=seen.answers)
    return tuple(case._replace(measured=(lane,)) for case in cases)


def add_calibration_argument(parser: argparse.ArgumentParser) -> None:
    """--calibration, for plan and render."""
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="what engines were seen to take beside weights and pool: `plimsoll calibration export`, or the "
        "ConfigMap plimsoll-calibration as it is",
    )


def with_calibration(cases: Sequence[Case], arguments: argparse.Namespace) -> tuple[Case, ...]:
    """The cases with what --calibration names; entries that are passed over are told on stderr.
    Raises BadInputError."""
    path: str | None = getattr(arguments, "calibration", None)
    if path is None:
        return tuple(cases)
    from plimsoll.cli.calibration_file import read_calibration  # noqa: PLC0415 - only for a file

    found = read_calibration(path, "--calibration").measured
    return tuple(case._replace(calibration=found) for case in cases)


def read_cases(paths: Sequence[str]) -> tuple[Case, ...]:
    """The InferenceDeployments of the files; other objects beside them are passed over, except the
    ConfigMaps that model.facts names. Raises BadInputError."""
    documents = read_documents(paths)
    wanted = [document for document in documents if document.kind == KIND]
    if not wanted:
        kinds = ", ".join(sorted({d.kind or "an object without kind" for d in documents}))
        raise BadInputError(
            f"{' '.join(paths)}: no InferenceDeployment in it, only {kinds}; "
            f"write kind: {KIND} and apiVersion: plimsoll.dev/v1alpha1"
        )
    config_maps = {
        (_metadata(d, "namespace") or "default", _metadata(d, "name")): d.body.get("data")
        for d in documents
        if d.kind == "ConfigMap"
    }
    return tuple(_case(document, config_maps) for document in wanted)


def answers_to(arguments: argparse.Namespace) -> tuple[Answer, ...]:
    """What the planner says to everything that -f, --pool, --gpu, --facts, --lengths and --calibration name."""
    cases = with_lengths(read_cases(arguments.filename), arguments)
    cases = with_calibration(cases, arguments)
    check_pool(cases, arguments.pool)
    answers = tuple(
        each
        for case in cases
        for each in answer(
            moved(case, arguments), inventory_for(case, arguments), pool=arguments.pool
        )
    )
    if not answers and arguments.pool is None:
        names = ", ".join(case.title for case in cases)
        raise BadInputError(
            f"spec.pools: {names} names no GPU type, and without a cluster none is in reach; write "
            "pools, or give --gpu TYPE, --all-gpus or --facts FILE"
        )
    if not answers:
        raise BadInputError(f"--pool: nothing is planned under the name {arguments.pool!r}")
    return answers


def moved(case: Case, arguments: argparse.Namespace) -> Case:
    """The case on the card that --gpu names; as it is without."""
    if arguments.gpu is None:
        return case
    return on_card(case, catalogue_card(arguments.gpu).product, pool=arguments.pool)


def inventory_for(case: Case, arguments: argparse.Namespace) -> Inventory:
    """Cards in reach: of the dump that --facts names, else of the catalogue."""
    table: str | None = arguments.gpu_types
    if arguments.facts and arguments.gpu is None:
        return read_inventory(arguments.facts, table)
    found = catalogue_inventory(case.deployment, arguments.gpu)
    return found if table is None else _as_told(found, table)


def _as_told(found: Inventory, table: str) -> Inventory:
    """Cards of the catalogue as the user's own table has them."""
    from plimsoll.api.inventory import told_types  # noqa: PLC0415 - only for a table
    from plimsoll.catalog.gpus import same_product  # noqa: PLC0415

    told = told_types(_profiles(table))
    nodes = tuple(
        node.model_copy(
            update={
                "gpu": next(
                    (
                        gpu.model_copy(update={"product": node.gpu.product})
                        for gpu in told
                        if same_product(gpu.product, node.gpu.product)
                    ),
                    node.gpu,
                )
            }
        )
        for node in found.nodes
    )
    return found.model_copy(update={"nodes": nodes, "told": told})


def _profiles(table: str | None) -> tuple[GpuProfile, ...]:
    """The rows of the user's own table. Raises BadInputError."""
    if table is None:
        return ()
    import yaml  # noqa: PLC0415 - only for a table

    from plimsoll.catalog.profiles import read_profiles  # noqa: PLC0415

    try:
        return read_profiles(yaml.safe_load(read_text(table)))
    except (ValueError, yaml.YAMLError) as error:
        raise BadInputError(f"--gpu-types: {table}: {error}") from error


def read_inventory(paths: Sequence[str], table: str | None = None) -> Inventory:
    """The cards that dumps of Nodes, GPUNodes and ResourceSlices show, `table` naming a file with the
    user's own table. A GPUNode without its Node stands for both. Raises BadInputError."""
    return inventory_in(read_documents(paths), " ".join(paths), table)


def inventory_in(documents: Sequence[Document], where: str, table: str | None = None) -> Inventory:
    """The same of objects that were read already, from `where`. Raises BadInputError."""
    from plimsoll.api.gpunode import KIND as GPU_NODE_KIND  # noqa: PLC0415 - only for a dump
    from plimsoll.api.inventory import inventory  # noqa: PLC0415

    nodes = [document.body for document in documents if document.kind == "Node"]
    gpu_nodes = [document.body for document in documents if document.kind == GPU_NODE_KIND]
    slices = [document.body for document in documents if document.kind == "ResourceSlice"]
    if not nodes and not gpu_nodes:
        kinds = ", ".join(sorted({d.kind or "an object without kind" for d in documents}))
        raise BadInputError(
            f"--facts: {where}: no Node or GPUNode in it, only {kinds}; make it with "
            "`kubectl get nodes -o json` or `kubectl get nodes,gpunodes -o json`"
        )
    unnamed = [d.where for d in documents if not _metadata(d, "name")]
    if unnamed:
        raise BadInputError(f"--facts: {unnamed[0]}: metadata.name is missing; dump it as it is")
    known = {node["metadata"]["name"] for node in nodes}
    nodes += [_node_of(each) for each in gpu_nodes if each["metadata"]["name"] not in known]
    try:
        return inventory(nodes, gpu_nodes, {}, resource_slices=slices, profiles=_profiles(table))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"--facts: {where}: not as an API server writes it ({error!r}); dump it as it is"
        ) from error


def _node_of(gpu_node: Mapping[str, Any]) -> dict[str, Any]:
    """The Node that a GPUNode speaks of, as far as cards go."""
    from plimsoll.api.gpunode import read_gpunode_status  # noqa: PLC0415 - only for a dump

    cards = read_gpunode_status(gpu_node.get("status")).cards
    whole = [card for card in cards if not card.mig_enabled]
    slices = [profile for card in cards for profile in card.mig_profiles]
    amounts = {profile.resource: 0 for profile in slices}
    for profile in slices:
        amounts[profile.resource] += profile.count
    if whole:
        amounts[WHOLE_CARD] = len(whole)
    first = next(iter(whole or cards), None)
    labels = {PRODUCT_LABEL: first.product} if first else {}
    return {
        "metadata": {"name": gpu_node["metadata"]["name"], "labels": labels},
        "status": {"allocatable": {name: str(amount) for name, amount in amounts.items()}},
    }


def check_pool(cases: Sequence[Case], name: str | None) -> None:
    """Raises BadInputError when pools are written and none has this name."""
    names = [pool.name for case in cases for pool in case.deployment.spec.pools]
    if name is not None and names and name not in names:
        raise BadInputError(f"--pool: there is no pool {name!r}; there are {', '.join(names)}")


def _case(document: Document, config_maps: dict[tuple[str, str], Any]) -> Case:
    deployment = _deployment(document)
    facts = deployment.spec.model.facts
    named = facts.config_map if facts is not None else None
    if named is None:
        return Case(deployment, document.body)
    data = config_maps.get((deployment.metadata.namespace, named.name))
    text = data.get(named.key) if isinstance(data, dict) else None
    return Case(deployment, document.body, text if isinstance(text, str) else None)


def _deployment(document: Document) -> DeploymentManifest:
    try:
        return read(document.body)
    except ValueError as error:
        raise BadInputError(
            "\n  ".join([f"{document.where} cannot be read:", *str(error).splitlines()])
        ) from error


def _metadata(document: Document, field: str) -> str:
    metadata = document.body.get("metadata")
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""
