"""How do we start a program so that it surely ends, and how do we know that it died?

Every child has a session of its own, writes to a log file of its own, and gets SIGKILL from the
kernel when this Python process goes, however it goes. The kernel counts the end of the thread that
started a child as that moment, so all are started by one thread that lives as long as we do.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from patience import Patience, stretched

LOG_TAIL_LINES: Final = 25
_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts-children")


class ProcessEndedError(RuntimeError):
    """A program ended that should run; the message has the end of its log."""


class Child:
    """One program that we started."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = tuple(map(str, command))
        self.log = log
        self._cwd = cwd
        self._env = dict(os.environ if env is None else env)
        self._popen = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)

        def start() -> subprocess.Popen[bytes]:
            with self.log.open("ab") as sink:
                return subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", "--", *self.command],
                    cwd=self._cwd,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )

        return _starter.submit(start).result()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    @property
    def is_running(self) -> bool:
        return self.returncode is None

    def must_run(self) -> None:
        """Raise with the end of the log when it does not."""
        if not self.is_running:
            raise ProcessEndedError(
                f"{self.name} ended with {self.returncode}; its log ends:\n{self.tail()}"
            )

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def cpu_seconds(self) -> float:
        """User and system time so far, threads included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """SIGKILL to it and to what it started in its session's group; returns when it is gone."""
        if self._popen.returncode is not None:  # reaped before, its number may be another's now
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(timeout=stretched(Patience.PROCESS_GONE))

    def terminate(self, within: float = Patience.PROCESS_GONE) -> int:
        """SIGTERM, and SIGKILL after `within` seconds; its exit status."""
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=stretched(within))
        self.kill()
        return self._popen.returncode

    def restart(self) -> None:
        """The same command again, the log goes on."""
        self.kill()
        self._popen = self._started()
