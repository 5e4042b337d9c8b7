"""How is a Python program run that wants other packages than ours: checkov, the site's mkdocs?

    python e2e/controlplane/apart.py checkov docs        makes what each needs, or says why not

Each has a lock file with hashes, requirements.NAME.lock, and an environment in the cache folder that is made from
it once. A folder is renamed when it is whole, so its programs are started as modules: `python -m NAME`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from controlplane.cache import key_of, made_once

REPOSITORY: Final = Path(__file__).resolve().parents[2]
ROOM: Final = "apart"


class CannotBeHadError(RuntimeError):
    """Its packages are not in reach; the message has what the installer said."""


def python(name: str) -> Path:
    """The interpreter beside which everything of requirements.NAME.lock is installed."""
    lock = REPOSITORY / f"requirements.{name}.lock"
    key = f"{name}-{key_of(sys.version, sys.executable, lock.read_bytes())}"
    return made_once(ROOM, key, lambda folder: _install(lock, folder)) / "bin" / "python"


def _install(lock: Path, folder: Path) -> None:
    """With uv where it is, else with the interpreter's own venv and pip."""
    there = folder / "bin" / "python"
    if uv := shutil.which("uv"):
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
        install: tuple[str | Path, ...] = (uv, "pip", "install", "--quiet", "--python", there)
    else:
        venv.create(folder, with_pip=True, clear=True)
        install = (there, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*install, "--require-hashes", "-r", lock)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBeHadError(f"{command[0]} ended with {done.returncode}: {done.stderr[-600:]}")


def main(names: list[str]) -> int:
    """Make them; what cannot be had is said, and whoever needs it says it again."""
    for name in names:
        try:
            print(f"{name}: {python(name)}")
        except CannotBeHadError as error:
            print(f"{name}: cannot be had here: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
