"""Runs a command in a network, process and mount namespace of its own, so that a real node fits in.

    python e2e/controlplane/netns.py -- python -m pytest e2e/stories      (root)
    python e2e/controlplane/netns.py --or-plainly -- ...                  outside where it must be

Inside there is loopback only, and nothing outside is reached. Loopback also carries 10.250.0.11-30 as
addresses of nodes: the API server refuses to speak to a kubelet on 127.0.0.0/8. Whatever runs inside
ends with the command: containers, mounts and network namespaces go with their namespaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

# The outer network namespace's name; set inside only.
OUTSIDE: Final = "PLIMSOLL_OUTER_NETNS"
NODE_ADDRESSES: Final = tuple(f"10.250.0.{n}" for n in range(11, 31))
INNER: Final = "--inner"
UNSHARE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# Fixed paths of containerd, CNI and kubelet: a private file system each, so that runs do not meet.
PRIVATE_FOLDERS: Final = (
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
)


def inside() -> bool:
    """Whether this process already runs in a namespace of ours."""
    return os.environ.get(OUTSIDE, _netns()) != _netns()


def why_not() -> str | None:
    """Why this machine cannot make such a namespace; None when it can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    tried = subprocess.run(
        [*UNSHARE, "--", "ip", "link"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no network namespace: {tried.stderr.strip()}"


def wrapped(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` inside."""
    return [*UNSHARE, "--", sys.executable, str(Path(__file__).resolve()), INNER, "--", *command]


def reexec_in_netns() -> None:
    """Start this Python program anew inside, unless it is there; returns inside only."""
    if inside():
        return
    sys.exit(run_inside(sys.orig_argv))


def run_inside(command: Sequence[str]) -> int:
    """Run and wait; the exit status. SIGTERM ends everything inside."""
    missing = [Path(folder) for folder in PRIVATE_FOLDERS if not Path(folder).exists()]
    environment = {**os.environ, OUTSIDE: _netns()}
    outer = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *wrapped(command)], env=environment
    )
    signal.signal(signal.SIGTERM, lambda *_: outer.kill())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it from the terminal itself
    status = _status(outer.wait())
    for folder in missing:  # made inside as places to mount on
        with suppress(OSError):
            folder.rmdir()
    return status


def be_init(command: Sequence[str]) -> int:
    """Process 1 inside: set up the network, run the command, bury orphans until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in NODE_ADDRESSES:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    for folder in PRIVATE_FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "plimsoll", folder], check=True)
    main = os.posix_spawnp(
        command[0], list(command), os.environ, setsigdef=[signal.SIGINT, signal.SIGTERM]
    )
    signal.signal(signal.SIGTERM, lambda *_: os.kill(main, signal.SIGTERM))
    while True:
        ended, status = os.wait()
        if ended == main:
            return _status(os.waitstatus_to_exitcode(status))


def _netns() -> str:
    return str(Path("/proc/self/ns/net").readlink())


def _status(code: int) -> int:
    """As a shell tells it: 128 and the signal's number."""
    return code if code >= 0 else 128 - code


def main(words: Sequence[str]) -> int:
    at = list(words).index("--") if "--" in words else len(words)
    options, command = words[:at], list(words[at + 1 :])
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if INNER in options:
        return be_init(command)
    if inside():
        os.execvp(command[0], command)
    if (reason := why_not()) is None:
        return run_inside(command)
    print(f"netns: {reason}", file=sys.stderr)
    if "--or-plainly" in options:
        os.execvp(command[0], command)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
