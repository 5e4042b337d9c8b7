"""What in a workload is worth a word, and how much does it matter?"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.api.advise_memory import memory_findings
from plimsoll.api.advise_pod import SHM, mapping, memory_of, shm_of
from plimsoll.api.advise_records import Finding, Level
from plimsoll.api.advise_seen import Seen, advice, matters, unknown
from plimsoll.api.advise_words import word_findings
from plimsoll.engines.llama_cpp.running import FITS_ITSELF
from plimsoll.engines.options import ROWS
from plimsoll.engines.vllm.defaults import utilization
from plimsoll.engines.vllm.memory import host_memory_bytes
from plimsoll.engines.vllm.running import VllmRun
from plimsoll.plan.records import Plan
from plimsoll.units import counted, gib

SMALL_SHM: Final = "a container gets 64 MiB there by itself"


def findings(seen: Seen) -> tuple[Finding, ...]:
    """All of them, what matters first."""
    found = [each for make in _MAKERS for each in make(seen)]
    order = list(Level)
    return tuple(sorted(dict.fromkeys(found), key=lambda each: order.index(each.level)))


def _release(seen: Seen) -> Iterator[Finding]:
    if seen.subject.release is None:
        image = seen.subject.image or "an image that the manifest does not name"
        yield unknown(
            "image",
            f"{image} does not say which release of the engine it is; defaults are those of {seen.subject.row.text}. "
            "Say it with --release, and pin a tag: a new image changes defaults under the same manifest.",
        )
    rows = {row.name: row for row in ROWS[seen.subject.engine]}
    for flag in dict.fromkeys(said.flag for said in seen.subject.reading.said):
        row = rows.get(flag)
        if row is None or seen.subject.release is None:
            continue
        if row.until is not None and not seen.subject.row.is_before(row.until):
            yield matters(
                flag,
                f"{seen.subject.row.text} does not have the flag any more ({row.source}) and refuses to start with "
                "it; take it out.",
            )
        if row.since is not None and seen.subject.row.is_before(row.since):
            yield matters(
                flag,
                f"the flag came with {row.since}; {seen.subject.row.text} refuses to start with it.",
            )


def _words(seen: Seen) -> Iterator[Finding]:
    return word_findings(seen.subject)


def _defaults(seen: Seen) -> Iterator[Finding]:
    if isinstance(seen.subject.run, VllmRun):
        if seen.subject.run.utilization is None and seen.subject.run.kv_cache_bytes is None:
            share = utilization(seen.subject.row)
            yield advice(
                "--gpu-memory-utilization",
                f"is not written, so {share:g} counts in this release; it was 0.90 before 0.20 and is 0.92 since: "
                "write it, or an image bump changes the pool.",
            )
        if seen.subject.run.max_model_len is None and not seen.subject.run.is_length_fitted:
            yield advice(
                "--max-model-len",
                "is not written, so the model's whole length counts: a request may take it all.",
            )
    else:
        if seen.subject.run.cache_ram_mib is not None and seen.subject.run.cache_ram_mib < 0:
            yield matters(
                "--cache-ram",
                "-1 lets the prompt cache grow without end, until the container is killed.",
            )
        if seen.fits_itself:
            yield advice(
                "--n-gpu-layers",
                "is not written: how many layers lie on the card depends on what is free at load.",
            )
        if seen.subject.run.slots is None and not seen.subject.row.is_before(FITS_ITSELF):
            yield advice(
                "--parallel",
                "is not written: four slots share one cache, and one long request takes the others' cells.",
            )


def _host(seen: Seen) -> Iterator[Finding]:
    """Host memory, shared memory."""
    limit, need = memory_of(seen.subject.workload.container, "limits"), _host_bytes(seen)
    if need is not None and limit is not None and limit < need:
        yield matters(
            "resources.limits.memory",
            f"{gib(limit)} is below the {gib(need)} that loading and serving may take in host memory: the kernel "
            "kills it with exit code 137 then.",
        )
    elif limit is None:
        enough = "" if need is None else f"; {gib(need)} hold it"
        yield advice(
            "resources.limits.memory",
            f"is not written: host memory that grows takes the node down with it{enough}.",
        )
    shm = shm_of(seen.subject.workload)
    run = seen.subject.run
    if isinstance(run, VllmRun) and run.cards > 1 and not shm.is_there:
        yield matters(
            SHM,
            f"{run.cards} ranks talk through shared memory, and {SMALL_SHM}; mount an emptyDir with medium Memory "
            "there.",
        )


def _host_bytes(seen: Seen) -> int | None:
    """What the container needs; None where that depends on a model that nobody knows."""
    plan = seen.now if isinstance(seen.now, Plan) else seen.ours
    if isinstance(plan, Plan):
        return plan.host_memory_bytes + seen.as_is.extra_host_bytes
    if isinstance(seen.subject.run, VllmRun):
        return host_memory_bytes(seen.subject.run.cards) + seen.as_is.extra_host_bytes
    return None


def _cards(seen: Seen) -> Iterator[Finding]:
    count = seen.card.count
    if isinstance(seen.subject.run, VllmRun):
        ranks = seen.subject.run.cards * (
            seen.subject.run.data if seen.subject.workload.nodes == 1 else 1
        )
        pods = seen.subject.workload.nodes
        if count is not None and ranks > count * pods:
            yield matters(
                "--tensor-parallel-size",
                f"{counted(ranks, 'rank')} need as many cards, and the pod asks for {count * pods}: the engine "
                "does not start.",
            )
        elif count is not None and ranks < count * pods:
            yield advice(
                "--tensor-parallel-size",
                f"the pod asks for {counted(count * pods, 'card')} and uses {ranks}; the others idle.",
            )
    if count is None:
        yield unknown(
            "resources.limits",
            "the container asks for no card: nothing keeps another pod off the one it uses.",
        )


def _probes(seen: Seen) -> Iterator[Finding]:
    container = seen.subject.workload.container
    if not container.get("readinessProbe"):
        yield advice(
            "readinessProbe", "is not there: requests are sent to a worker that still loads."
        )
    live = mapping(container.get("livenessProbe"))
    if live and not container.get("startupProbe"):
        patience = _number(live, "initialDelaySeconds", 0) + _number(
            live, "periodSeconds", 10
        ) * _number(live, "failureThreshold", 3)
        yield advice(
            "startupProbe",
            f"is not there, and the liveness probe gives up after {patience} s: loading that takes longer "
            "is killed and begins anew.",
        )


def _number(probe: Mapping[str, Any], field: str, default: int) -> int:
    value = probe.get(field, default)
    return value if isinstance(value, int) else default


def _budget(seen: Seen) -> Iterator[Finding]:
    if seen.budgets is None or seen.subject.workload.kind in ("Pod", "DaemonSet", "Model", "Job"):
        return
    labels = seen.subject.workload.labels
    for each in seen.budgets:
        spec = mapping(each.get("spec"))
        wanted = mapping(mapping(spec.get("selector")).get("matchLabels"))
        if wanted and all(labels.get(key) == value for key, value in wanted.items()):
            return
    yield advice(
        "PodDisruptionBudget",
        "none stands beside it in what was given: a drain may take all workers at once.",
    )


_MAKERS: Final = (memory_findings, _cards, _words, _release, _host, _defaults, _probes, _budget)
"""Each says what it has to say of one side."""
