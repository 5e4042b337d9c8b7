"""Hand-made rules and uses: what counts as denied, what counts as never used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from audit import AuditLog, Grant, Use, compare, granted, grants_of, read_line

OPERATOR = "system:serviceaccount:plimsoll-system:plimsoll-operator"
RULE = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch", "create"]}


def line(verb: str, resource: str, code: int = 200, **about: str) -> str:
    return json.dumps(
        {
            "user": {"username": OPERATOR},
            "verb": verb,
            "objectRef": {"resource": resource, **about},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.500000Z",
        }
    )


def manifests() -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": "plimsoll-operator"}
    subjects = [subject | {"namespace": "plimsoll-system"}]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}
    return [
        {"kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [RULE]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "all"},
            "subjects": subjects,
        },
        {
            "kind": "Role",
            "metadata": {"name": "own", "namespace": "plimsoll-system"},
            "rules": [leases | {"resourceNames": ["plimsoll"]}],
        },
        {
            "kind": "RoleBinding",
            "metadata": {"name": "own", "namespace": "plimsoll-system"},
            "roleRef": {"kind": "Role", "name": "own"},
            "subjects": subjects,
        },
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "of-another"},
            "roleRef": {"kind": "ClusterRole", "name": "all"},
            "subjects": [subject | {"namespace": "elsewhere"}],
        },
    ]


def test_rules_used_to_the_letter_are_exact() -> None:
    used = [Use("apps", "deployments", verb, "default", "w") for verb in RULE["verbs"]]
    comparison = compare(grants_of(RULE), used)
    assert comparison.is_exact
    assert "used exactly as granted" == str(comparison)


def test_a_verb_without_a_grant_is_denied() -> None:
    used = [Use("apps", "deployments", verb) for verb in (*RULE["verbs"], "delete")]
    comparison = compare(grants_of(RULE), used)
    assert {Use("apps", "deployments", "delete")} == comparison.denied
    assert "denied: delete deployments.apps" == str(comparison)


def test_a_grant_that_nobody_used_is_named() -> None:
    used = [Use("apps", "deployments", "get"), Use("apps", "deployments", "patch")]
    comparison = compare(grants_of(RULE), used)
    assert {Grant("apps", "deployments", "create")} == comparison.unused
    assert not comparison.is_exact


def test_a_refusal_counts_even_where_the_manifests_would_grant_it() -> None:
    used = [Use("apps", "deployments", verb) for verb in RULE["verbs"]]
    refused = Use("apps", "deployments", "get")
    assert {refused} == compare(grants_of(RULE), used, denied=[refused]).denied


def test_a_resource_does_not_cover_its_subresource() -> None:
    grants = grants_of({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
    eviction = Use("", "pods/eviction", "create", "default", "w-0")
    assert {eviction} == compare(grants, [eviction]).denied


def test_bindings_decide_where_a_role_holds() -> None:
    grants = granted(manifests(), OPERATOR)
    lease = Grant("coordination.k8s.io", "leases", "update", "plimsoll-system", "plimsoll")
    assert grants_of(RULE) | {lease} == grants
    elsewhere = Use("coordination.k8s.io", "leases", "update", "default", "plimsoll")
    assert {elsewhere} == compare(grants, [elsewhere]).denied


def test_an_apply_that_creates_uses_two_verbs(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(line("patch", "deployments", 201, apiGroup="apps", name="w") + "\n")
    verbs = {use.verb for use in AuditLog(log).verbs_used(OPERATOR)}
    assert {"patch", "create"} == verbs


def test_a_403_is_denied_and_not_used(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(line("list", "secrets", 403) + "\n")
    assert not AuditLog(log).verbs_used(OPERATOR)
    assert {Use("", "secrets", "list")} == AuditLog(log).denied(OPERATOR)


def test_a_kubelets_question_is_a_use_of_the_one_asked_about(tmp_path: Path) -> None:
    stats = {"verb": "get", "resource": "nodes", "subresource": "stats", "name": "a"}
    event = json.loads(line("create", "subjectaccessreviews", apiGroup="authorization.k8s.io"))
    event["user"] = {"username": "system:node:a"}
    event["requestObject"] = {"spec": {"user": OPERATOR, "resourceAttributes": stats}}
    event["responseObject"] = {"status": {"allowed": True}}
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event) + "\n")
    assert {Use("", "nodes/stats", "get", name="a")} == AuditLog(log).verbs_used(OPERATOR)


def test_a_half_written_line_is_left_for_later() -> None:
    assert read_line(line("get", "pods")[:40]) is None


def test_requests_before_the_mark_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(line("patch", "pods", name="w") + "\n")
    received = read_line(line("patch", "pods"))
    assert received is not None
    assert 1 == len(AuditLog(log).writes_by(OPERATOR, received.at_seconds))
    assert 0 == len(AuditLog(log).writes_by(OPERATOR, received.at_seconds + 1))
