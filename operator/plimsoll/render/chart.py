"""Which files of the chart are printed from code, and with what text?

Helm cannot read outside a chart's folder, so the CRDs are copied into it, each behind `crds.install`;
and the operator's roles are printed from the list of verbs that its code uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plimsoll.render.text import to_yaml

_PRINTED: Final = "{{- /* Printed by `make generate`; edit what it is printed from instead. */}}\n"
_METADATA: Final = re.compile(r"^metadata:\n(?P<below>(?:[ \t]+.*\n)*)", re.MULTILINE)
_ANNOTATIONS: Final = re.compile(r"^  annotations:\n", re.MULTILINE)
_INCLUDED: Final = '    {{- include "plimsoll.crdAnnotations" . | nindent 4 }}\n'
_BRACES: Final = re.compile(r"\{\{|\}\}")


def render_chart_rbac(
    rules: Sequence[Mapping[str, Any]],
    *,
    elsewhere: Sequence[Mapping[str, Any]] = (),
    namespaced: bool = False,
    of_agents: bool = False,
) -> str:
    """Text of the chart's ClusterRole, or with `namespaced` of the Role in its own namespace; the operator's,
    or with `of_agents` that of the agents.

    `rules` as in a Role: apiGroups, resources, verbs and perhaps resourceNames. `elsewhere` stands in their
    place where `operator.namespaces` names some, for the rest is in Roles then.
    """
    wanted = "and .Values.rbac.create .Values.agent.enabled" if of_agents else ".Values.rbac.create"
    name, labels = ("agentName", "agentLabels") if of_agents else ("fullname", "labels")
    kind = "Role" if namespaced else "ClusterRole"
    namespace = "  namespace: {{ .Release.Namespace }}\n" if namespaced else ""
    body = _rules(rules)
    if elsewhere:
        body = (
            f"{{{{- if .Values.operator.namespaces }}}}\n{_rules(elsewhere)}{{{{- else }}}}\n{body}"
            "{{- end }}\n"
        )
    return (
        f"{_PRINTED}{{{{- if {wanted} }}}}\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        f"kind: {kind}\n"
        "metadata:\n"
        f'  name: {{{{ include "plimsoll.{name}" . }}}}\n'
        f"{namespace}"
        "  labels:\n"
        f'    {{{{- include "plimsoll.{labels}" . | nindent 4 }}}}\n'
        f"{body}"
        "{{- end }}\n"
    )


def render_chart_watched_rbac(rules: Sequence[Mapping[str, Any]]) -> str:
    """Text of the operator's Role, and what binds it, in each of `operator.namespaces`."""
    metadata = (
        "metadata:\n"
        '  name: {{ include "plimsoll.fullname" $ }}-watched\n'
        "  namespace: {{ . }}\n"
        "  labels:\n"
        '    {{- include "plimsoll.labels" $ | nindent 4 }}\n'
    )
    return (
        f"{_PRINTED}{{{{- if .Values.rbac.create }}}}\n"
        "{{- range .Values.operator.namespaces }}\n"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: Role\n"
        f"{metadata}{_rules(rules)}"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: RoleBinding\n"
        f"{metadata}"
        "roleRef:\n"
        "  apiGroup: rbac.authorization.k8s.io\n"
        "  kind: Role\n"
        '  name: {{ include "plimsoll.fullname" $ }}-watched\n'
        "subjects:\n"
        "- kind: ServiceAccount\n"
        '  name: {{ include "plimsoll.serviceAccountName" $ }}\n'
        "  namespace: {{ $.Release.Namespace }}\n"
        "{{- end }}\n"
        "{{- end }}\n"
    )


def _rules(rules: Sequence[Mapping[str, Any]]) -> str:
    text = to_yaml([{"rules": [dict(rule) for rule in rules]}]).removeprefix("---\n")
    return _escaped(text)


def render_chart_crd(text: str) -> str:
    """Text of the chart's copy of one CRD file: the same object, behind `crds.install`, with the
    chart's annotations.

    Raises ValueError when the text is not one object with metadata in block style.
    """
    plain = _escaped(text.removeprefix("---\n"))
    match = _METADATA.search(plain)
    if match is None or len(re.findall(r"^kind:", plain, re.MULTILINE)) != 1:
        raise ValueError("a CRD file holds one object, with `metadata:` on a line of its own")
    below = match["below"]
    if _ANNOTATIONS.search(below):
        below = _ANNOTATIONS.sub(lambda found: found[0] + _INCLUDED, below, count=1)
    else:
        below = f"  annotations:\n{_INCLUDED}{below}"
    start, end = match.span("below")
    body = plain[:start] + below + plain[end:]
    if not body.endswith("\n"):
        body += "\n"
    return f"{_PRINTED}{{{{- if .Values.crds.install }}}}\n{body}{{{{- end }}}}\n"


def _escaped(text: str) -> str:
    """Braces in descriptions stay what they are; Helm would take them for its own."""
    return _BRACES.sub(lambda found: '{{ "' + found[0] + '" }}', text)
