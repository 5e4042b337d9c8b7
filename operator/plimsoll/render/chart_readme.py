"""What can be set in the chart, as a page for people?

The defaults are those of values.yaml and the words those of values.schema.json, so the page cannot say
anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_HEAD: Final = """\
<!-- Printed by `make generate` from values.yaml and values.schema.json; edit those. -->
# Plimsoll's chart

Operator, agents and CRDs. Helm 3.13 or newer, Kubernetes 1.30 or newer.

```
helm install plimsoll charts/plimsoll -n plimsoll-system --create-namespace
helm test plimsoll -n plimsoll-system
```

What is rendered depends on the values alone: no lookup in the cluster, nothing random, no time. `helm template` and
GitOps tools therefore give the same text, and what only some clusters have (Prometheus' operator, Grafana) is asked for
by a value. `helm template --skip-tests` leaves the pod of `helm test` out. The namespace may be labelled
`pod-security.kubernetes.io/enforce: restricted`.

## Without a way to the internet

One image holds operator, agent, inspection and probe: mirror it and set `image.registry`, with `image.digest` to be
exact. `imagePullSecrets` are those of the operator, the agents and `helm test`. Inspection and probe run in the
namespace of their InferenceDeployment, with its `spec.worker.imagePullSecrets` or those of that namespace's default
service account. Engines' images are named in each InferenceDeployment.

## Some namespaces only

With `operator.namespaces` everything that has a namespace is granted by a Role in each of them, which must exist. The
ClusterRole keeps what has none: nodes, `nodes/stats`, GPUNodes and ResourceSlices. Cards that pods elsewhere hold are
not seen then: give such nodes a taint or a label of their own.

## Network policies

`networkPolicy.enabled` needs a network plugin that enforces them. Policies cannot name the API server or kubelets, so
fill in `networkPolicy.apiServer.cidrs` and `networkPolicy.nodes.cidrs`; empty ones allow any address at those ports.
Where Prometheus is read (`watching.prometheus.url`) or DNS answers from the node itself, add a rule to
`networkPolicy.extraEgress`. Where policies of your own cover workers, they must let the operator's pod reach port 8000.

Gates stand in the namespaces of InferenceDeployments. `networkPolicy.gates.namespaces` names those in which the chart
makes a policy for them: the operator itself needs no right to policies. `networkPolicy.gates.onlyDoor` closes the
workers there to all but gates, probes, the operator and `networkPolicy.metricsFrom`.

## Upgrade, rollback, uninstall

Neither moves a worker: accepted plans are held. CRDs are templates behind `crds.install` and stay on uninstall, with
every InferenceDeployment and its workers, unless `crds.keep` is false.

## Values

| value | default | what it is |
|---|---|---|
"""


def render_chart_readme(values: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The page; a value without a description stands there with none."""
    rows = (
        f"| `{name}` | {_cell(default)} | {_escaped(text)} |"
        for name, default, text in _leaves(values, schema, "")
    )
    return _HEAD + "\n".join(rows) + "\n"


def _leaves(
    values: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Any, str]]:
    """Dotted name, default and description of each value that cannot be taken apart further."""
    for name, default in values.items():
        dotted = f"{path}.{name}" if path else name
        below = schema.get("properties", {}).get(name, {})
        parts = below.get("properties", {}).values()
        if isinstance(default, Mapping) and parts and all("description" in each for each in parts):
            yield from _leaves(default, below, dotted)
        else:
            yield dotted, default, below.get("description", "")


def _cell(default: Any) -> str:
    return f"`{json.dumps(default, ensure_ascii=False)}`".replace("|", "\\|")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
