"""How is a plan with lanes written down for HAProxy?

One text for all releases from 2.6 on; what only newer ones know stands behind `.if version_atleast`.
Where each line is from:

- `option http-no-delay`: without it streamed chunks wait 107 ms at p50 (measured: docs/measured/gateway.md).
- `option http-server-close`, `http-reuse never`: one connection per generation. vLLM closes idle ones after
  5 s (vLLM 0.33.0, envs.py: VLLM_HTTP_TIMEOUT_KEEP_ALIVE), and a reused one would race with that.
- `retry-on conn-failure`: nothing was sent yet, so nothing is generated twice.
- `wait-for-body` with a buffer that holds the whole body: a body that drips would hold a slot.
- A server is never given `maxconn 0`, which means no limit (HAProxy 2.6, configuration manual, `maxconn`).
- `track`: the lanes follow the servers of `pool`, so that one command drains a worker everywhere.

No text of the client's gets into an answer or a log: neither keys nor prompts are repeated anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plimsoll.render.gateway_lanes import lane_choice
from plimsoll.render.gateway_records import Affinity, GateLane, GateServer, GateText
from plimsoll.render.gateway_words import KB, OWN_ERRORS, Refusal, own_error, refuse

POOL: Final = "pool"
"""The backend that owns health and drain; the same word as in `gate.reading`, a test compares them."""
NOWHERE: Final = "127.0.0.1:9"
"""Where a server points that nobody stands in: the discard port, and the server is closed."""
GENERATES: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
"""What takes a slot."""
LOOKS: Final = ("/v1/models",)
"""What takes none. Everything else is not there: engines answer on other paths that change them."""
SET_BY_US: Final = ("X-Plimsoll-Lane", "X-Plimsoll-Priority", "X-Vllm-Priority")
"""Headers that only the gate sets. vLLM reads the last from 0.28 on (vllm/entrypoints/openai)."""
HEADER_BYTES: Final = 16 << 10
"""HAProxy's own default buffer, and so its usual bound on headers; ours is larger, for bodies."""
MOST_HEADERS: Final = 64
ALIVE_PATH: Final = "/healthz"
"""HAProxy runs."""
READY_PATH: Final = "/readyz"
"""And its keeper has opened the door."""
KEEP_ALIVE_SECONDS: Final = 8
"""A client's idle connection lasts no longer, so that none is left at a gate that proxies have forgotten for ten
seconds: nobody can close it there."""
CHECK: Final = "check inter 1s fastinter 300ms fall 2 rise 2"
"""A worker that is gone is found within two seconds; a frozen one keeps its streams. One that comes back is
well after two checks, so that the keeper has closed its lanes by then."""
LOG: Final = (
    '{"lane":"%[var(txn.lane)]","key":"%[var(txn.key)]","server":"%s","status":%ST,"reason":"%[var(txn.reason)]",'
    '"waited_ms":%Tw,"total_ms":%Ta,"body_bytes":"%[var(txn.body_bytes)]","sent_bytes":%B,"ended":"%tsc",'
    '"in_flight":%sc,"queued":%bq}'
)
"""One line per request, as JSON."""


def haproxy_text(gate: GateText) -> str:
    """The whole configuration. Equal plans give equal bytes.

    Raises ValueError when a server has not one number of slots per lane.
    """
    for server in gate.servers:
        if server.address is not None and len(server.slots) != len(gate.lanes):
            raise ValueError(
                f"server {server.name} has {len(server.slots)} numbers of slots for {len(gate.lanes)} lanes"
            )
    lines = (
        *_global(gate),
        *_defaults(gate),
        *_frontend(gate),
        *(line for place in range(len(gate.lanes)) for line in _lane(gate, place)),
        *_pool(gate),
        *_metrics(gate),
    )
    return "\n".join(lines) + "\n"


def most_connections(gate: GateText) -> int:
    """Clients at once: what runs and waits, four times, so that refusals are still told in a flood."""
    runs = sum(sum(server.slots) for server in gate.servers)
    waits = sum(lane.queue_length for lane in gate.lanes)
    return min(8000, max(1000, 4 * (runs + waits)))


def _global(gate: GateText) -> Iterator[str]:
    run = gate.run_folder
    yield "global"
    yield f"    nbthread {gate.threads}"
    yield f"    maxconn {most_connections(gate)}"
    yield f"    stats socket {run}/haproxy.sock mode 600 level admin expose-fd listeners"
    yield f"    tune.bufsize {gate.most_body_bytes + HEADER_BYTES}"
    yield f"    tune.http.maxhdr {MOST_HEADERS}"
    yield f"    hard-stop-after {gate.longest_answer_seconds}s"
    yield f"    log {run}/log.sock len 1024 format raw local0"
    yield "    log stdout len 1024 format raw local0"


def _defaults(gate: GateText) -> Iterator[str]:
    yield "defaults"
    yield "    mode http"
    yield "    log global"
    yield "    timeout connect 2s"
    yield f"    timeout client {gate.idle_seconds}s"
    yield f"    timeout server {gate.silent_seconds}s"
    yield f"    timeout http-request {gate.request_seconds}s"
    yield f"    timeout http-keep-alive {KEEP_ALIVE_SECONDS}s"
    yield "    timeout check 2s"
    yield "    option http-no-delay"
    yield "    option abortonclose"
    yield "    option http-server-close"
    yield "    http-reuse never"
    yield "    retries 2"
    yield "    retry-on conn-failure"
    yield "    option redispatch 1"
    yield "    option dontlognull"
    yield from map(own_error, OWN_ERRORS)


def _frontend(gate: GateText) -> Iterator[str]:
    yield "frontend gate"
    yield f"    bind {gate.host}:{gate.port}"
    yield f"    log-format '{LOG}'"
    for header in SET_BY_US:
        yield f"    http-request del-header {header}"
    yield "    http-request del-header Upgrade"
    yield f"    acl generates path -m str {' '.join(GENERATES)}"
    yield f"    acl looks path -m str {' '.join(LOOKS)}"
    yield "    acl health path -m str /health"
    yield refuse(
        Refusal(431, "headers_too_large", f"headers are over {HEADER_BYTES} bytes"),
        f"{{ req.hdrs,length -m int gt {HEADER_BYTES} }}",
    )
    yield refuse(Refusal(404, "not_found", "no such path here"), "!generates !looks !health")
    yield refuse(Refusal(405, "method_not_allowed", "use POST"), "generates !METH_POST")
    yield refuse(Refusal(405, "method_not_allowed", "use GET"), "!generates !METH_GET")
    yield f"    http-request return status 200 if health {{ nbsrv({POOL}) gt 0 }}"
    yield refuse(Refusal(503, "no_worker", "no worker is ready"), "!generates { nbsrv(pool) eq 0 }")
    if gate.has_keys:
        yield (
            "    http-request set-var(txn.key) "
            f"http_auth_bearer,sha2(256),hex,lower,map_str({gate.run_folder}/keys.map)"
        )
        yield refuse(
            Refusal(401, "invalid_api_key", "this API key is not known here"),
            "!{ var(txn.key) -m found }",
        )
        yield "    http-request del-header Authorization"
    yield refuse(
        Refusal(411, "length_required", "send Content-Length; chunked bodies are not taken"),
        "generates !{ req.hdr(content-length) -m found }",
    )
    yield "    http-request set-var(txn.body_bytes) req.hdr(content-length) if generates"
    yield refuse(
        Refusal(413, "body_too_large", f"the body is over {gate.most_body_bytes // KB} kB"),
        f"generates {{ req.hdr(content-length) -m int gt {gate.most_body_bytes} }}",
    )
    yield from lane_choice(gate)
    for lane in gate.lanes:
        yield from _refusals_of(gate, lane)
    yield f"    http-after-response set-header Connection close if {{ {_plate(gate, 'gate')} -m str leaves }}"
    yield f"    use_backend {POOL} if !generates"
    yield "    use_backend %[var(txn.lane)]"


def _plate(gate: GateText, key: str) -> str:
    """What the keeper says of the door, or of a lane."""
    return f"str({key}),map_str({gate.run_folder}/gate.map)"


def _refusals_of(gate: GateText, lane: GateLane) -> Iterator[str]:
    """No live worker first: that is no overload, unless another gate still holds the slots. Then the queue's
    length."""
    name = lane.name
    low, high = lane.retry_after_seconds
    is_it = f"generates {{ var(txn.lane) -m str {name} }}"
    yield f"    http-request set-var(txn.retry) rand({high - low + 1}),add({low}) if {is_it}"
    yield refuse(
        Refusal(429, "queue_full", f"lane {name} is full", lane=name, retry=True),
        f"{is_it} {{ nbsrv({name}) eq 0 }} {{ {_plate(gate, f'lane.{name}')} -m found }}",
    )
    yield refuse(
        Refusal(503, "no_worker", f"lane {name}: no worker is ready", lane=name, retry=True),
        f"{is_it} {{ nbsrv({name}) eq 0 }}",
    )
    full = (
        f"{{ queue({name}) ge {lane.queue_length} }}"
        if lane.queue_length
        else f"{{ be_conn_free({name}) le 0 }}"
    )
    yield refuse(
        Refusal(429, "queue_full", f"lane {name} is full", lane=name, retry=True), f"{is_it} {full}"
    )


def _lane(gate: GateText, place: int) -> Iterator[str]:
    lane = gate.lanes[place]
    wait_ms = lane.queue_seconds * 1000
    waited = f"date(0,ms),sub(txn.began_ms),add(20),div({wait_ms})"
    yield f"backend {lane.name}"
    yield from _balance(gate.affinity)
    yield f"    timeout queue {wait_ms}ms"
    yield f"    http-request set-header X-Plimsoll-Lane {lane.name}"
    if lane.priority is not None:
        yield f"    http-request set-header X-Plimsoll-Priority {lane.priority}"
        yield f"    http-request set-header X-Vllm-Priority {lane.priority}"
    yield "    http-request set-var(txn.began_ms) date(0,ms)"
    # our own 503 says what happened; a wait that was too long is overload, and told as 429
    yield (
        "    http-error status 503 content-type application/json lf-string "
        f'\'{{"error":{{"message":"lane {lane.name}: no slot came free within {lane.queue_seconds} s, or its worker'
        f' went away","type":"rate_limit_error","code":"%[{waited},bool,iif(queue_wait,unavailable)]",'
        f'"param":null,"lane":"{lane.name}"}}}}\''
    )
    yield "    http-response set-var(txn.answered) bool(true)"
    yield ".if version_atleast(3.0)"
    yield (
        "    http-after-response set-var(txn.reason) str(queue_wait) if { status 503 } "
        "{ txn.sess_term_state -m beg sQ } { nbsrv gt 0 }"
    )
    yield ".else"
    yield (
        "    http-after-response set-var(txn.reason) str(queue_wait) if { status 503 } "
        f"!{{ var(txn.answered) -m found }} {{ {waited} -m int ge 1 }} {{ nbsrv gt 0 }}"
    )
    yield ".endif"
    yield "    http-after-response set-status 429 if { var(txn.reason) -m str queue_wait }"
    yield (
        "    http-after-response set-var(txn.reason) str(unavailable) if { status 503 } "
        "!{ var(txn.answered) -m found }"
    )
    yield "    http-after-response set-header X-Plimsoll-Reason %[var(txn.reason)] if { var(txn.reason) -m found }"
    yield (
        "    http-after-response set-header Retry-After %[var(txn.retry)] if { status 429 503 } "
        "!{ res.hdr(Retry-After) -m found }"
    )
    for server in gate.servers:
        slots = server.slots[place] if server.address is not None else 0
        yield _lane_server(server, slots, is_closed=gate.begins_closed or slots == 0)


def _lane_server(server: GateServer, slots: int, *, is_closed: bool) -> str:
    return (
        f"    server {server.name} {server.address or NOWHERE} maxconn {max(1, slots)} "
        f"weight {server.weight} track {POOL}/{server.name}" + (" disabled" if is_closed else "")
    )


def _balance(affinity: Affinity) -> Iterator[str]:
    """By the fewest requests; or by a hash, so that a session stays with its worker. It leaves when that one is
    full (3.2), or has half as many again as the mean (before: there a full one would be waited for)."""
    if affinity is Affinity.NONE:
        yield "    balance leastconn"
        return
    yield "    balance hash var(txn.session)"
    yield "    hash-type consistent"
    yield ".if version_atleast(3.2)"
    yield "    hash-preserve-affinity maxconn"
    yield ".else"
    yield "    hash-balance-factor 150"
    yield ".endif"


def _pool(gate: GateText) -> Iterator[str]:
    yield f"backend {POOL}"
    yield "    balance random"
    yield "    timeout queue 2s"
    yield "    option httpchk GET /health"
    yield "    http-check expect status 200"
    for server in gate.servers:
        is_free = "" if server.address is not None else " disabled"
        yield f"    server {server.name} {server.address or NOWHERE} maxconn 8 {CHECK}{is_free}"


def _metrics(gate: GateText) -> Iterator[str]:
    yield "frontend metrics"
    yield f"    bind {gate.host}:{gate.metrics_port}"
    yield f"    monitor-uri {ALIVE_PATH}"
    yield "    no log"
    yield (
        f"    http-request return status 200 if {{ path {READY_PATH} }} {{ {_plate(gate, 'gate')} -m str open }}"
    )
    yield f"    http-request return status 503 if {{ path {READY_PATH} }}"
    yield "    http-request use-service prometheus-exporter if { path /metrics }"
    yield "    http-request deny deny_status 404"
