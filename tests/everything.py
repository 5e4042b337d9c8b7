"""Everything that CI runs, in the order that finds faults soonest, with times and the slowest parts.

The control plane's programs are built beside the checks, for they take longest on a new machine; then
the real leak begins beside them, which mostly waits for memory to grow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent
PYTHON: Final = sys.executable
PYTEST: Final = (PYTHON, "-m", "pytest", "-q", "--durations=8", "--durations-min=1")

BUILD: Final = (PYTHON, "e2e/controlplane/build.py")
STEPS: Final[tuple[tuple[str, tuple[str | Path, ...]], ...]] = (
    ("ruff: rules", (BIN / "ruff", "check", ".")),
    ("ruff: form", (BIN / "ruff", "format", "--check", ".")),
    ("mypy: product", (BIN / "mypy",)),
    ("mypy: tests", (BIN / "mypy", "tests")),
    ("mypy: e2e and benchmarks", (BIN / "mypy", "e2e", "benchmarks")),
    ("import-linter", (BIN / "lint-imports",)),
    ("tests without a cluster", (*PYTEST, "tests")),
)
REPEATABLE: Final = {"CI": "1"}
"""Random examples are the same in each run; at a desk they are new ones."""
FETCH: Final = (PYTHON, "e2e/controlplane/fetch.py", "--or-say-why")
FETCH_HAPROXY: Final = (PYTHON, "e2e/controlplane/haproxy.py")
STORIES: Final = (PYTHON, "e2e/controlplane/netns.py", "--or-plainly", "--", *PYTEST)
PATIENT: Final = tuple(f"e2e/stories/test_{name}.py" for name in ("recycling", "watching"))
"""Stories that mostly wait for memory to grow, on a control plane of their own."""
REAL_LEAK: Final = "e2e/stories/test_recycling_on_a_real_node.py"
"""Says itself why not, where the machine has too little memory for its two nodes."""
APART: Final = (*PATIENT, REAL_LEAK)
"""What the first part leaves out."""
PARTS: Final[tuple[tuple[str, tuple[str | Path, ...]], ...]] = (
    (
        "stories on a real cluster",
        (*STORIES, "e2e/stories", *(f"--ignore={path}" for path in APART)),
    ),
    ("stories of watching and recycling", (*STORIES, *PATIENT)),
)


Took = tuple[str, float, int]
"""A step, its seconds and its exit code."""


def main() -> int:
    """Run all; 0 when all passed. A failed check does not hide the next one's."""
    started = time.monotonic()
    build = subprocess.Popen(["nice", *BUILD], cwd=ROOT)
    with ThreadPoolExecutor(1) as beside:
        try:
            leak = beside.submit(_once_built, build)
            took = [_run(name, command) for name, command in STEPS]
            took.extend(_waited(leak))
            if not build.returncode:
                took.extend(_in_parts(PARTS))
        finally:
            if build.poll() is None:
                build.terminate()
                build.wait()
    return _report(took, time.monotonic() - started)


def _once_built(build: subprocess.Popen[bytes]) -> list[Took]:
    """What the real nodes need and the real leak, quietly: what it says is printed when it is over."""
    code = build.wait()
    took = [("the control plane's build", 0.0, code)]
    if not code:
        took.append(_run("fetch what the real node needs", FETCH))
        took.append(_run("fetch HAProxy's releases", FETCH_HAPROXY))
        unused = {"PLIMSOLL_UNUSED_VERBS": os.devnull}
        took.append(_run("a real leak", (*STORIES, REAL_LEAK), quietly=True, also=unused))
    return took


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


def _in_parts(parts: tuple[tuple[str, tuple[str | Path, ...]], ...]) -> list[Took]:
    """The stories' parts one after the other; then the verbs that every part left unused."""
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for number, (name, command) in enumerate(parts):
            unused = {"PLIMSOLL_UNUSED_VERBS": str(Path(folder) / f"unused-{number}")}
            took.append(_run(name, command, also=unused))
        took.append(_verbs(Path(folder), len(parts)))
    return took


def _verbs(folder: Path, parts: int) -> Took:
    """No granted verb may be left unused by every part."""
    name = "every granted verb was used"
    files = [folder / f"unused-{number}" for number in range(parts)]
    if not all(path.exists() for path in files):
        print(f"== {name}: not known, a part did not get that far", flush=True)
        return name, 0.0, 1
    left = set.intersection(*(set(path.read_text(encoding="utf-8").splitlines()) for path in files))
    for line in sorted(left):
        print(f"never used: {line}", flush=True)
    return name, 0.0, 1 if left else 0


def _waited(beside: Future[list[Took]]) -> list[Took]:
    """What ran beside the checks, and for how long it kept us."""
    started = time.monotonic()
    took = beside.result()
    return [*took, ("waited for what ran beside", time.monotonic() - started, 0)]


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
