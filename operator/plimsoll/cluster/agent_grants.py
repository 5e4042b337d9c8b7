"""Which verbs does an agent use, and why each?

The only list, as grants.py is the operator's; the chart's RBAC is printed from it. RBAC cannot say "your
own node's": a ValidatingAdmissionPolicy of the chart does.
"""

from __future__ import annotations

from typing import Any, Final

from plimsoll.cluster.grants import OUR_GROUP, Grant, Scope, rules_of

AGENT_GRANTS: Final[tuple[Grant, ...]] = tuple(
    Grant(
        group=OUR_GROUP,
        resource=resource,
        verb=verb,
        scope=Scope.CLUSTER,
        why=why,
        logged_as=verb,
    )
    for resource, verb, why in (
        ("gpunodes", "get", "take up what was known of the node before this agent started"),
        ("gpunodes", "create", "the node's object, where there is none"),
        ("gpunodes/status", "patch", "server-side apply of what the agent saw; nothing else"),
    )
)


def agent_role_rules() -> list[dict[str, Any]]:
    """Rules of the agents' ClusterRole."""
    return rules_of(AGENT_GRANTS)
