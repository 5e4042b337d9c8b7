"""Do the chart's monitors and policies pick the very pods that the operator makes, and ports that those have?

The chart as `helm template` renders it, beside the gate and the workers as the operator renders them.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controlplane.build import programs
from controlplane.cluster import OUR_NAMESPACE
from dashboard_gate import LANES, GateDay
from gate_box import GateBox, free_port
from installation import CHART, RELEASE, REPOSITORY
from patience import Patience, eventually
from plimsoll.api.manifest import API_VERSION, KIND
from plimsoll.keeper.page import metrics_text
from plimsoll.render.gateway_objects import PAGE_PORT, GateObjects, gate_manifests
from plimsoll.render.gateway_records import GateLane, GateServer, GateText
from plimsoll.render.pod import PORT
from plimsoll.render.records import OwnerRef
from prometheus_server import asked, prometheus, why_not
from stand_ins.batching import Engine, Pinned

TEAMS: Final = ("team-a", "team-b")
PROMETHEUS: Final = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
CLIENTS: Final = {"podSelector": {"matchLabels": {"app": "chat"}}}
ON: Final[dict[str, Any]] = {
    "monitoring": {"podMonitor": {"enabled": True}},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [PROMETHEUS],
        "gates": {"namespaces": list(TEAMS), "clientsFrom": [CLIENTS], "onlyDoor": True},
    },
}


def rendered(**values: Any) -> list[dict[str, Any]]:
    said = subprocess.run(
        [programs() / "helm", "template", RELEASE, CHART, "-n", OUR_NAMESPACE, "-f", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in yaml.safe_load_all(said.stdout) if each]


def named(kind: str, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one kind and name; of several namespaces the first."""
    return next(e for e in found if (e["kind"], e["metadata"]["name"]) == (kind, name))


def gate_pod() -> dict[str, Any]:
    owner = OwnerRef(api_version=API_VERSION, kind=KIND, namespace="team-a", name="chat", uid="u")
    objects = GateObjects(owner, question="q", text="t", image="haproxy:3.2", keeper_image="p:1")
    template: dict[str, Any] = gate_manifests(objects)[0]["spec"]["template"]
    return template


def component(name: str) -> dict[str, str]:
    return {"plimsoll.dev/deployment": "chat", "app.kubernetes.io/component": name}


def picks(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """As Kubernetes reads a label selector; the two operators that are used here."""

    def holds(each: dict[str, Any]) -> bool:
        match each["operator"]:
            case "Exists":
                return each["key"] in labels
            case "In":
                return labels.get(each["key"]) in each["values"]
        raise AssertionError(each)

    equal = selector.get("matchLabels", {}).items() <= labels.items()
    return equal and all(holds(each) for each in selector.get("matchExpressions", ()))


def ports_of(pod: dict[str, Any]) -> set[str]:
    return {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", ())}


@pytest.fixture(scope="module")
def everything() -> list[dict[str, Any]]:
    return rendered(**ON)


def test_the_monitor_picks_gates_and_both_their_pages(everything: list[dict[str, Any]]) -> None:
    spec = named("PodMonitor", "plimsoll-gates", everything)["spec"]
    pod = gate_pod()
    assert picks(spec["selector"], pod["metadata"]["labels"])
    assert not picks(spec["selector"], component("worker"))
    endpoints = {each["port"]: each for each in spec["podMetricsEndpoints"]}
    assert {"metrics", "page"} == set(endpoints) == ports_of(pod) - {"http"}
    # so that every figure carries the names that alerts and dashboard go by
    assert {"deployment"} == {
        rule["targetLabel"] for each in endpoints.values() for rule in each["relabelings"]
    }
    assert {"scope": ["global", "frontend", "backend"]} == endpoints["metrics"]["params"]


def test_the_monitor_of_workers_picks_no_gate(everything: list[dict[str, Any]]) -> None:
    selector = named("PodMonitor", "plimsoll-workers", everything)["spec"]["selector"]
    assert [True, True, False, False] == [
        picks(selector, component(each))
        for each in ("worker", "worker-draining", "gateway", "probe")
    ]


@pytest.mark.parametrize(
    ("namespaces", "selected"), [([], {"any": True}), (list(TEAMS), {"matchNames": list(TEAMS)})]
)
def test_monitors_look_where_the_operator_looks(
    namespaces: list[str], selected: dict[str, Any]
) -> None:
    found = rendered(**(ON | {"operator": {"namespaces": namespaces}}))
    monitors = [each["spec"]["namespaceSelector"] for each in found if each["kind"] == "PodMonitor"]
    assert [selected, selected] == monitors


def policies(name: str, found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in found:
        if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", name):
            yield each


def test_a_gate_lets_clients_in_at_the_services_port_and_metrics_to_prometheus(
    everything: list[dict[str, Any]],
) -> None:
    found = list(policies("plimsoll-gates", everything))
    assert list(TEAMS) == [each["metadata"]["namespace"] for each in found]
    spec, pod = found[0]["spec"], gate_pod()
    assert picks(spec["podSelector"], pod["metadata"]["labels"])
    who = {port["port"]: rule["from"] for rule in spec["ingress"] for port in rule["ports"]}
    gates, operator, prometheus = who["page"]
    assert picks(gates["podSelector"], pod["metadata"]["labels"])
    assert {"podSelector", "namespaceSelector"} == set(operator)  # asks whom the gates have drained
    assert PROMETHEUS == prometheus
    assert {"http": [CLIENTS], "metrics": who["page"], "page": who["page"]} == who
    assert ports_of(pod) == set(who)
    ways_out = {
        port["port"]: each["podSelector"]
        for rule in spec["egress"]
        for port in rule["ports"]
        for each in rule["to"]
        if {"podSelector"} == set(each)  # of the same namespace
    }
    assert {PORT, PAGE_PORT} == set(ways_out)
    assert picks(ways_out[PORT], component("worker"))
    assert picks(ways_out[PAGE_PORT], component("gateway"))


def test_nobody_goes_past_the_gate_but_who_looks_at_workers(
    everything: list[dict[str, Any]],
) -> None:
    spec = next(policies("plimsoll-workers", everything))["spec"]
    assert picks(spec["podSelector"], component("worker-draining"))
    assert not picks(spec["podSelector"], component("gateway"))
    ((rule,),) = [spec["ingress"]]
    near, operator, prometheus = rule["from"]
    assert PROMETHEUS == prometheus
    assert [True, True, False] == [
        picks(near["podSelector"], component(each)) for each in ("gateway", "probe", "worker")
    ]
    assert {"matchLabels": {"kubernetes.io/metadata.name": OUR_NAMESPACE}} == operator[
        "namespaceSelector"
    ]
    pod = named("Deployment", "plimsoll", everything)["spec"]["template"]["metadata"]["labels"]
    assert picks(operator["podSelector"], pod)


def test_policies_of_gates_are_asked_for_namespace_by_namespace() -> None:
    found = rendered(networkPolicy={"enabled": True})
    assert {OUR_NAMESPACE} == {
        each["metadata"]["namespace"] for each in found if each["kind"] == "NetworkPolicy"
    }
    some = rendered(networkPolicy={"enabled": True, "gates": {"namespaces": ["team-a"]}})
    assert [] == list(policies("plimsoll-workers", some))
    (open_to_all,) = policies("plimsoll-gates", some)
    assert [False, False] == ["from" in rule for rule in open_to_all["spec"]["ingress"]]


def test_the_operator_needs_no_right_to_policies() -> None:
    roles = sorted((CHART / "templates").glob("*role.yaml"))
    assert len(roles) >= 3
    assert [each for each in roles if "networkpolicies" in each.read_text(encoding="utf-8")] == []


def test_a_runbook_is_a_page_of_the_site_that_is_named_or_a_file_of_the_clone() -> None:
    def links(**rule: Any) -> set[str]:
        values = {"monitoring": {"prometheusRule": {"enabled": True, **rule}}}
        spec = named("PrometheusRule", "plimsoll", rendered(**values))["spec"]
        return {
            each["annotations"]["runbook_url"]
            for group in spec["groups"]
            for each in group["rules"]
        }

    here, there = links(), links(runbookUrl="https://docs.example.com/alerts/")
    assert "docs/alerts.md#plimsollgatedown" in here
    assert {f"docs/alerts.md#{each.rpartition('#')[2]}" for each in there} == here
    assert "https://docs.example.com/alerts/#plimsollgatedown" in there
    page = (REPOSITORY / "docs/alerts.md").read_text(encoding="utf-8")
    headings = {line[3:].lower() for line in page.splitlines() if line.startswith("## ")}
    assert {each.rpartition("#")[2] for each in here} == headings


ALERTS: Final = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
TARGET: Final = {"namespace": "team-a", "deployment": "chat", "pod": "chat-gate-0"}
"""What the monitor's relabelings, and Prometheus' operator itself, make of the gate's pod."""


class KeepersPage:
    """The keeper's own text at a port, until it is closed."""

    def __init__(self, text: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def scrapes(found: list[dict[str, Any]], ports: dict[str, int]) -> list[dict[str, Any]]:
    """What Prometheus' operator makes of the monitor, with fixed targets in place of pods."""
    endpoints = named("PodMonitor", "plimsoll-gates", found)["spec"]["podMetricsEndpoints"]
    return [
        {
            "job_name": each["port"],
            "metrics_path": each["path"],
            "params": each.get("params", {}),
            "scrape_interval": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{ports[each['port']]}"], "labels": TARGET}],
        }
        for each in endpoints
    ]


def test_a_real_prometheus_scrapes_both_pages_and_alerts_when_the_keeper_goes(
    tmp_path: Path, everything: list[dict[str, Any]]
) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    day = GateDay(("chat-h100-0", "chat-h100-1"))
    day.minute(12.0)
    text = GateText(
        lanes=(GateLane(name="chat", most_tokens=4096, answer_tokens=1024),),
        servers=(GateServer(name="s0", address=f"127.0.0.1:{free_port()}", slots=(8,)),),
        port=free_port(),
        metrics_port=free_port(),
    )
    engine = Engine("w0", Pinned(kv_tokens=40_000, max_num_seqs=8), lane_tokens={"chat": 4096})
    page = KeepersPage(metrics_text(day.told, day.tally, LANES))
    ports = {"metrics": text.metrics_port, "page": page.port}

    def look(port: int) -> None:
        def values(query: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = asked(port, "/api/v1/query", {"query": query})["result"]
            return found

        eventually(
            lambda: bool(
                values("haproxy_process_uptime_seconds and on (pod) plimsoll_gate_kv_tokens")
            ),
            within=Patience.PART_READY,
            says="Prometheus has both pages",
        )
        # no label of ours is in the way of the target's, and no series for each worker is taken from HAProxy
        assert values('{__name__=~"plimsoll_gate.+|haproxy.+",exported_pod!=""}') == []
        assert values('{__name__=~"haproxy_server_.+"}') == []
        workers = {each["metric"]["worker"] for each in values("plimsoll_gate_kv_tokens")}
        assert {"chat-h100-0", "chat-h100-1"} == workers
        gone = ALERTS["PlimsollGateKeeperGone"]
        assert values(gone) == values(ALERTS["PlimsollGateOverPlan"]) == []
        page.close()
        eventually(
            lambda: [each["metric"] for each in values(gone)] == [TARGET],
            within=Patience.PART_READY,
            says="the alert about the keeper has the gate's own names",
        )

    async def story() -> None:
        async with GateBox(tmp_path / "gate", text, [engine]):
            with prometheus(tmp_path, scrapes=scrapes(everything, ports)) as port:
                await asyncio.to_thread(look, port)

    try:
        asyncio.run(story())
    finally:
        page.close()
