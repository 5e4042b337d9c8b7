"""What an agent may do: its own kind, and not even all of that."""

from __future__ import annotations

from pathlib import Path

from plimsoll.cluster.agent_grants import AGENT_GRANTS, agent_role_rules
from plimsoll.render.chart import render_chart_rbac

CHART = Path(__file__).parents[3] / "charts" / "plimsoll" / "templates"


def test_an_agent_reaches_no_other_kind_and_removes_nothing() -> None:
    assert {("plimsoll.dev", "gpunodes"), ("plimsoll.dev", "gpunodes/status")} == {
        (grant.group, grant.resource) for grant in AGENT_GRANTS
    }
    assert {"get", "create", "patch"} == {grant.verb for grant in AGENT_GRANTS}
    assert all(grant.why for grant in AGENT_GRANTS)


def test_of_the_object_only_the_status_is_written_once_it_is_there() -> None:
    assert [("gpunodes/status", "patch")] == [
        (grant.resource, grant.verb)
        for grant in AGENT_GRANTS
        if grant.verb not in ("get", "create")
    ]


def test_the_charts_role_is_printed_from_the_list() -> None:
    printed = render_chart_rbac(agent_role_rules(), of_agents=True)
    assert printed == (CHART / "agent-clusterrole.yaml").read_text(encoding="utf-8")
    assert "{{- if and .Values.rbac.create .Values.agent.enabled }}" in printed
