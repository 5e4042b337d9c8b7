from __future__ import annotations

import pytest

from plimsoll.render.chart import render_chart_crd, render_chart_rbac

RULES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
CRD = """# Made from code.
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.plimsoll.dev
spec:
  group: plimsoll.dev
"""


def test_a_role_lists_the_rules_behind_its_switch() -> None:
    text = render_chart_rbac(RULES)
    assert text.count("{{- if .Values.rbac.create }}\n") == 1
    assert "\nkind: ClusterRole\n" in text
    assert text.endswith(
        "rules:\n- apiGroups:\n  - ''\n  resources:\n  - nodes\n"
        "  verbs:\n  - get\n  - list\n  - watch\n{{- end }}\n"
    )
    assert "namespace:" not in text


def test_a_role_of_one_namespace_says_which() -> None:
    text = render_chart_rbac(RULES, namespaced=True)
    assert "\nkind: Role\n" in text
    assert "\n  namespace: {{ .Release.Namespace }}\n" in text


def test_a_crd_is_copied_behind_its_switch_with_the_charts_annotations() -> None:
    assert render_chart_crd(CRD).partition("\n")[2] == (
        "{{- if .Values.crds.install }}\n"
        "# Made from code.\n"
        "apiVersion: apiextensions.k8s.io/v1\n"
        "kind: CustomResourceDefinition\n"
        "metadata:\n"
        "  annotations:\n"
        '    {{- include "plimsoll.crdAnnotations" . | nindent 4 }}\n'
        "  name: things.plimsoll.dev\n"
        "spec:\n"
        "  group: plimsoll.dev\n"
        "{{- end }}\n"
    )


def test_annotations_that_a_crd_has_are_kept() -> None:
    text = render_chart_crd(CRD.replace("metadata:\n", "metadata:\n  annotations:\n    a: b\n"))
    assert text.count("annotations:\n") == 1
    assert "nindent 4 }}\n    a: b\n" in text


def test_braces_in_a_description_are_not_helms() -> None:
    text = render_chart_crd(CRD.replace("plimsoll.dev\n", "'{{x}}'\n"))
    assert """'{{ "{{" }}x{{ "}}" }}'""" in text


@pytest.mark.parametrize("text", ["kind: A\n", CRD + CRD, "metadata: {name: x}\nkind: A\n"])
def test_a_file_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one object"):
        render_chart_crd(text)
