"""`plimsoll render`: which manifests would the operator apply?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from plimsoll.cli.answers import Answer
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.inputs import (
    add_calibration_argument,
    add_input_arguments,
    check_pool,
    inventory_for,
    moved,
    read_cases,
    with_calibration,
)
from plimsoll.cli.offline import Case, answer, changed
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.decide import Manifest, Observed, decide
from plimsoll.facts.gpu import Inventory
from plimsoll.plan.records import Refusal
from plimsoll.render.text import to_yaml

EPILOG: Final = """\
examples:
  plimsoll render -f chat.yaml                      every object, as YAML documents
  plimsoll render -f chat.yaml --replicas 4         as if `kubectl scale --replicas 4` had been run
  kubectl get gpunodes -o json | plimsoll render -f chat.yaml --facts -
  plimsoll render -f chat.yaml | kubectl diff -f -  what would change

These are the very objects that the operator applies to a cluster with these cards once the first
worker of each pool is ready; until then it starts no other. What only a cluster knows is not in them:
the owner reference with the UID of the InferenceDeployment.

exit codes:
  0  every pool fits
  2  bad input: the message on stderr names the field, the value and the way out
  3  at least one pool is refused: stderr says why, and its objects are left out
"""
_FORMS: Final = (Form.YAML.value, Form.JSON.value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll render`."""
    add_input_arguments(parser)
    add_calibration_argument(parser)
    parser.add_argument(
        "--replicas", metavar="N", type=int, help="workers over all pools, instead of spec.replicas"
    )
    add_output(parser, says="yaml (default) or json", forms=_FORMS, default=Form.YAML.value)


def run(arguments: argparse.Namespace) -> int:
    """Decide as the operator would, and print what it would apply."""
    if arguments.replicas is not None and not 0 <= arguments.replicas <= 1000:
        raise BadInputError(f"--replicas: {arguments.replicas} is not between 0 and 1000")
    cases = with_calibration(read_cases(arguments.filename), arguments)
    check_pool(cases, arguments.pool)
    manifests: list[Manifest] = []
    refused = False
    for each in cases:
        case = _as_asked(moved(each, arguments), arguments)
        inventory = inventory_for(case, arguments)
        refusals = [found for found in answer(case, inventory) if found.is_refused]
        _tell(refusals)
        refused = refused or bool(refusals)
        manifests.extend(_manifests(case, inventory))
    sys.stdout.write(_printed(manifests, Form(arguments.output)))
    return Exit.REFUSED if refused else Exit.FITS


def _as_asked(case: Case, arguments: argparse.Namespace) -> Case:
    """With --replicas and --pool applied to the spec."""
    if arguments.pool is not None:
        pools = [pool for pool in case.body["spec"]["pools"] if pool["name"] == arguments.pool]
        case = changed(case, pools=pools)
    return case if arguments.replicas is None else changed(case, replicas=arguments.replicas)


def _manifests(case: Case, inventory: Inventory) -> Sequence[Manifest]:
    """What is applied in the end: decided twice, the second time with the first worker of each pool
    ready, because only then the operator starts the others."""
    metadata = {"namespace": case.deployment.metadata.namespace, **case.body["metadata"]}
    body = {**case.body, "metadata": metadata}
    observed = Observed(
        deployment=body,
        inventory=inventory,
        facts_text=case.facts_text,
        calibration=case.calibration,
    )
    first = decide(observed, now_seconds=0.0)
    started = observed.model_copy(
        update={
            "deployment": {**body, "status": first.status or {}},
            "children": tuple(_with_a_ready_worker(child) for child in first.apply),
        }
    )
    return decide(started, now_seconds=0.0).apply


def _with_a_ready_worker(child: Manifest) -> Manifest:
    if child["kind"] != "Deployment":
        return child
    return {**child, "status": {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}}


def _tell(refusals: Sequence[Answer]) -> None:
    for found in refusals:
        if isinstance(found.outcome, Refusal):
            print(
                f"{found.deployment}, pool {found.pool}: refused: {found.outcome.reason.value}: "
                f"{found.outcome.sentence()}",
                file=sys.stderr,
            )


def _printed(manifests: Sequence[Manifest], form: Form) -> str:
    if form is Form.JSON:
        return as_text({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, form)
    return to_yaml(manifests) if manifests else ""
