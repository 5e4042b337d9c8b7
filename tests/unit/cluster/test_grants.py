"""What the operator may do."""

from __future__ import annotations

from plimsoll.cluster.grants import (
    GRANTS,
    Scope,
    cluster_role_rules,
    own_role_rules,
    rules_of,
    watched_role_rules,
)
from plimsoll.cluster.kinds import CHILDREN, CONFIG_MAP

FORBIDDEN = {"secrets", "pods/exec", "pods/log", "nodes/proxy", "*"}


def verbs(rules: list[dict[str, list[str]]]) -> set[tuple[str, str, str]]:
    """Rules spread out again."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_no_grant_stands_twice_and_each_has_its_reason() -> None:
    assert len(GRANTS) == len({(g.group, g.resource, g.verb) for g in GRANTS})
    assert all(grant.why for grant in GRANTS)


def test_secrets_shells_and_proxies_are_out_of_reach() -> None:
    assert not FORBIDDEN & {grant.resource for grant in GRANTS}
    assert not {"*", "impersonate", "escalate", "deletecollection"} & {g.verb for g in GRANTS}


def test_of_the_users_object_only_the_status_is_written() -> None:
    written = {g.resource for g in GRANTS if g.verb in ("patch", "update", "create", "delete")}
    assert "inferencedeployments/status" in written
    assert "inferencedeployments" not in written


def test_every_child_can_be_made_and_put_right() -> None:
    granted = {(g.group, g.resource, g.verb) for g in GRANTS}
    for kind in CHILDREN:
        for verb in ("create", "patch", "list", "watch"):
            assert (kind.group, kind.plural, verb) in granted


def test_only_children_of_pools_can_be_removed() -> None:
    """The Service goes with its owner, by the garbage collector."""
    removed = {g.resource for g in GRANTS if g.verb == "delete"}
    assert removed == {"deployments", "poddisruptionbudgets"}


def test_the_audit_log_calls_the_making_of_what_is_applied_a_patch() -> None:
    for grant in GRANTS:
        is_applied = grant.resource in {kind.plural for kind in (*CHILDREN, CONFIG_MAP)}
        expected = "patch" if is_applied and grant.verb == "create" else grant.verb
        assert expected == grant.logged_as


def test_roles_together_are_all_grants_in_both_layouts() -> None:
    everything = {(g.group, g.resource, g.verb) for g in GRANTS}
    assert everything == verbs(cluster_role_rules()) | verbs(own_role_rules())
    assert everything == (
        verbs(cluster_role_rules(watches_all_namespaces=False))
        | verbs(watched_role_rules())
        | verbs(own_role_rules())
    )


def test_a_narrow_cluster_role_has_only_what_has_no_namespace() -> None:
    narrow = verbs(cluster_role_rules(watches_all_namespaces=False))
    assert {"nodes", "nodes/stats", "gpunodes", "resourceslices"} == {
        resource for _, resource, _ in narrow
    }


def test_of_a_node_only_its_figures_are_read_and_nothing_goes_through_it() -> None:
    """nodes/proxy would open a kubelet's exec and logs to whoever holds our token."""
    of_nodes = {(g.resource, g.verb) for g in GRANTS if g.resource.partition("/")[0] == "nodes"}
    assert {("nodes", "list"), ("nodes", "watch"), ("nodes/stats", "get")} == of_nodes


def test_rules_do_not_depend_on_the_order_of_grants() -> None:
    assert rules_of(GRANTS) == rules_of(reversed(GRANTS))


def test_leases_are_in_our_own_namespace_only() -> None:
    assert {Scope.OWN} == {grant.scope for grant in GRANTS if grant.resource == "leases"}


def test_a_job_that_reads_files_is_made_and_looked_at_and_nothing_else() -> None:
    verbs_of_jobs = {grant.verb for grant in GRANTS if grant.resource == "jobs"}
    assert {"create", "get"} == verbs_of_jobs
