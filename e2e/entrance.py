"""How does somebody in another terminal reach a cluster that lives in a network namespace of its own?"""

from __future__ import annotations

import shlex
from pathlib import Path

from controlplane import netns
from controlplane.cluster import ControlPlane


def entrance(cluster: ControlPlane) -> Path:
    """A script that runs a command with this cluster's kubectl, helm and credentials, in the network
    namespace of this demo where it has one of its own."""
    environment = {
        name: cluster.environment[name]
        for name in ("KUBECONFIG", "KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME")
    }
    path = shlex.quote(str(cluster.bin))
    lines = [
        "#!/bin/sh",
        *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
        f"export PATH={path}:$PATH",
    ]
    if netns.inside():
        namespace = Path("/proc/self/ns/net").readlink()
        lines += [
            "for process in /proc/[0-9]*; do",
            f'  [ "$(readlink "$process/ns/net" 2>/dev/null)" = "{namespace}" ] &&',
            '    exec nsenter --target "${process#/proc/}" --net --mount -- "$@"',
            "done",
            "echo 'the demo has ended' >&2; exit 1",
        ]
    else:
        lines.append('exec "$@"')
    script = cluster.dir / "enter"
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return script
