"""Everything that CI runs, with times and the slowest parts.

The checks run as they always did, one after the other. The control plane's programs are built beside them, for
they take longest on a new machine. As soon as they are there the stories run beside the checks too, in parts, each
with a cluster of its own and as many at a time as there are cores: stories mostly wait, for kubelets and
rollouts. The checks give way to them. Those that watch memory grow run alone, at the end. What a part says is printed
when it is over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent
PYTHON: Final = sys.executable
PYTEST: Final = (PYTHON, "-m", "pytest", "-q", "-rs", "--durations=8", "--durations-min=1")

BUILD: Final = (PYTHON, "e2e/controlplane/build.py")
STEPS: Final[tuple[tuple[str, tuple[str | Path, ...]], ...]] = (
    ("ruff: rules", (BIN / "ruff", "check", ".")),
    ("ruff: form", (BIN / "ruff", "format", "--check", ".")),
    ("mypy: product", (BIN / "mypy",)),
    ("mypy: tests", (BIN / "mypy", "tests")),
    ("mypy: e2e and benchmarks", (BIN / "mypy", "e2e", "benchmarks")),
    ("import-linter", (BIN / "lint-imports",)),
    ("the documents as a site", (PYTHON, "tests/build_site.py", "--or-say-why")),
    ("tests without a cluster", (*PYTEST, "tests")),
)
REPEATABLE: Final = {"CI": "1"}
"""Random examples are the same in each run; at a desk they are new ones."""
FETCH: Final = (PYTHON, "e2e/controlplane/fetch.py", "--or-say-why")
FETCH_HAPROXY: Final = (PYTHON, "e2e/controlplane/haproxy.py", "--or-say-why")
FETCH_CHECKOV: Final = (PYTHON, "e2e/controlplane/apart.py", "checkov")
WITHOUT_HYPOTHESIS: Final = ("-p", "no:hypothesispytest")
"""No story uses it, and its plugin imports it when all is over, beside threads that still run: CPython 3.11 then may
end in "AST constructor recursion depth mismatch"."""
IN_A_NETNS: Final = (PYTHON, "e2e/controlplane/netns.py", "--or-plainly", "--")
STORIES: Final = (*IN_A_NETNS, *PYTEST, *WITHOUT_HYPOTHESIS)


class Part(NamedTuple):
    """Stories that share a cluster, or have none in common."""

    name: str
    """What it is called in the report."""
    paths: tuple[str, ...]
    """What pytest runs."""
    counts_verbs: bool = True
    """Whether it uses the shared installation, and so knows which granted verbs it left unused."""


def _files(*names: str) -> tuple[str, ...]:
    """Those of these stories that are there; one under another name runs with all others."""
    paths = (f"e2e/stories/test_{name}.py" for name in names)
    return tuple(path for path in paths if (ROOT / path).exists())


OWN_CLUSTERS: Final = Part(
    "stories on clusters of their own",
    _files(
        "agent",
        "agent_on_a_real_node",
        "controlplane",
        "deaths_on_a_real_node",
        "gateway_on_a_real_node",
        "gitops",
        "install",
        "outage",
        "policy",
        "probe",
        "real_node",
        "real_worker",
        "upgrade",
    ),
    counts_verbs=False,
)
REAL_LEAK: Final = Part("a real leak", _files("recycling_on_a_real_node"), counts_verbs=False)
"""Says itself why not, where the machine has too little memory for its two nodes."""
GATES: Final = Part(
    "stories of the gate",
    tuple(
        name
        for path in sorted((ROOT / "e2e" / "stories").glob("test_gate*.py"))
        if (name := str(path.relative_to(ROOT))) not in OWN_CLUSTERS.paths
    ),
)
PATIENT: Final = Part("stories of watching and recycling", _files("recycling", "watching"))
"""They mostly wait for memory to grow, in hours that are seconds there: what keeps the machine busy beside them makes
a rise of minutes look like one of hours. So they run alone, after all others."""
FAULTS: Final = Part("stories of faults", _files("faults", "soak"), counts_verbs=False)
APART: Final = (OWN_CLUSTERS, FAULTS, REAL_LEAK, GATES, PATIENT)
SHARED: Final = Part(
    "stories on a shared cluster",
    ("e2e/stories", *(f"--ignore={path}" for part in APART for path in part.paths)),
)
"""All others, also those that nobody has put anywhere yet."""
BESIDE: Final = (SHARED, *(part for part in APART if part is not PATIENT))
"""Those that run beside each other and beside the checks, longest first."""
AT_ONCE: Final = int(os.environ.get("PLIMSOLL_PARTS_AT_ONCE") or os.cpu_count() or 1)
"""1 runs them one after the other, where it matters which of two disturbs the other."""
PATIENTLY: Final = {"PLIMSOLL_PATIENCE": os.environ.get("PLIMSOLL_PATIENCE", "2")}
"""Every wait may take so much longer where others use the machine too. It slows no success down."""


Took = tuple[str, float, int]
"""A step, its seconds and its exit code."""


def main() -> int:
    """Run all; 0 when all passed. A failed check does not hide the next one's."""
    started = time.monotonic()
    build = subprocess.Popen(["nice", *BUILD], cwd=ROOT)
    with (
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(1) as first,
        ThreadPoolExecutor(AT_ONCE) as then,
    ):
        try:
            built = first.submit(_once_built, build)
            there = [part for part in (*BESIDE, PATIENT) if part.paths]
            unused = {part.name: Path(folder) / part.name for part in there if part.counts_verbs}
            parts = [
                then.submit(_part, built, part, unused.get(part.name))
                for part in there
                if part is not PATIENT
            ]
            took = [_run(name, ("nice", *command)) for name, command in STEPS]
            for each in (built, *parts):
                took.extend(each.result())
            if PATIENT in there:
                took.extend(_part(built, PATIENT, unused[PATIENT.name]))
            if not build.returncode:
                took.append(_verbs(unused.values()))
        finally:
            if build.poll() is None:
                build.terminate()
                build.wait()
    return _report(took, time.monotonic() - started)


def _once_built(build: subprocess.Popen[bytes]) -> list[Took]:
    """Wait for the control plane's programs, and fetch what stories need besides."""
    code = build.wait()
    took = [("the control plane's build", 0.0, code)]
    if not code:
        took.append(_run("fetch what the real node needs", FETCH))
        took.append(_run("fetch HAProxy's releases", FETCH_HAPROXY))
        took.append(_run("fetch what inspects the chart", FETCH_CHECKOV))
    return took


def _part(built: Future[list[Took]], part: Part, unused: Path | None) -> list[Took]:
    """One part of the stories, once the programs are there; nothing where they are not."""
    if built.result()[0][2]:
        return []
    also = PATIENTLY | {"PLIMSOLL_UNUSED_VERBS": str(unused or os.devnull)}
    return [_run(part.name, (*STORIES, *part.paths), quietly=True, also=also)]


def _run(
    name: str,
    command: tuple[str | Path, ...],
    *,
    quietly: bool = False,
    also: Mapping[str, str] | None = None,
) -> Took:
    """One step, with its output as it comes, or all of it at the end; `also` joins the environment."""
    print(f"\n== {name}: {' '.join(map(str, command[:1]))} ...", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        list(command),
        cwd=ROOT,
        check=False,
        env=os.environ | REPEATABLE | dict(also or {}),
        stdout=subprocess.PIPE if quietly else None,
        stderr=subprocess.STDOUT if quietly else None,
    )
    seconds = time.monotonic() - started
    if quietly:
        print(f"\n== what {name} said:\n{done.stdout.decode(errors='replace')}", flush=True)
    said = "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"
    print(f"== {name}: {said}, {seconds:.1f} s", flush=True)
    return name, seconds, done.returncode


def _verbs(files: Collection[Path]) -> Took:
    """No granted verb may be left unused by every part."""
    name = "every granted verb was used"
    if not all(path.exists() for path in files):
        print(f"== {name}: not known, a part did not get that far", flush=True)
        return name, 0.0, 1
    left = set.intersection(*(set(path.read_text(encoding="utf-8").splitlines()) for path in files))
    for line in sorted(left):
        print(f"never used: {line}", flush=True)
    return name, 0.0, 1 if left else 0


def _report(took: list[Took], total_seconds: float) -> int:
    print("\nWhat took how long, slowest first:")
    for name, seconds, code in sorted(took, key=lambda step: -step[1]):
        print(f"  {seconds:8.1f} s  {name}{'' if code == 0 else f'  FAILED ({code})'}")
    failed = sum(code != 0 for _, _, code in took)
    print(f"  {total_seconds:8.1f} s  in all")
    print(f"steps: {len(took) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
