"""How does an engine's last error get into its pod's status?

llama-server is one process: the end of its log says why it died, and the kubelet takes that by itself. vLLM
is several. The one that speaks last is the HTTP server, whose own traceback is longer than the 2048 bytes
that a kubelet keeps of a log (3675 bytes with vLLM 0.33.0: docs/measured/last-words.md), so the cause never
reaches the status; and an engine that dies while it serves ends the server with exit code 0, of which a kubelet
keeps no log at all. So vLLM's own errors are written to the container's termination message as well, of which
the last 4096 bytes are kept whatever the exit code. Its logging is told so by a file that the downward API makes of an
annotation: no ConfigMap, no shell, no permission.
"""

from __future__ import annotations

import json
from typing import Any, Final

from plimsoll.engines.base import EngineName
from plimsoll.render.pod import CONTAINER_NAME, pod_template_1
from plimsoll.render.records import Manifest, PoolWorkload

LOGGING_ANNOTATION: Final = "plimsoll.dev/vllm-logging"
CONFIG_VARIABLE: Final = "VLLM_LOGGING_CONFIG_PATH"
USERS_OWN: Final = frozenset({CONFIG_VARIABLE, "VLLM_CONFIGURE_LOGGING"})
"""Who sets one of these has a logging of their own; vLLM refuses ours beside the second set to 0
(vLLM 0.33.0, logger.py)."""
USERS_FLAGS: Final = ("--logging-config", "--log-config-file")
"""The same as arguments, from 0.32 on (vLLM 0.33.0, config/logging.py)."""
LEVEL_VARIABLE: Final = "VLLM_LOGGING_LEVEL"
_VOLUME: Final = "logging"
_FOLDER: Final = "/etc/plimsoll"
_FILE: Final = "vllm-logging.json"
TERMINATION_LOG: Final = "/dev/termination-log"
"""Kubernetes' default terminationMessagePath; the kubelet makes it writable for every user."""


def pod_template_2(workload: PoolWorkload, digest: str) -> Manifest:
    """The pod template, second revision: the first, and vLLM's errors in the termination message."""
    pods = pod_template_1(workload, digest)
    if workload.plan.engine is not EngineName.VLLM or _has_logging_of_its_own(workload):
        return pods
    level = next((e.value for e in workload.env if e.name == LEVEL_VARIABLE and e.value), "INFO")
    metadata, spec = pods["metadata"], pods["spec"]
    annotations = metadata["annotations"] | {LOGGING_ANNOTATION: logging_config(level.upper())}
    path = f"metadata.annotations['{LOGGING_ANNOTATION}']"
    item = {"path": _FILE, "fieldRef": {"apiVersion": "v1", "fieldPath": path}}
    volume = {"name": _VOLUME, "downwardAPI": {"items": [item], "defaultMode": 0o644}}
    containers = [
        _with_logging(each) if each["name"] == CONTAINER_NAME else each
        for each in spec["containers"]
    ]
    return pods | {
        "metadata": metadata | {"annotations": dict(sorted(annotations.items()))},
        "spec": spec | {"containers": containers, "volumes": [*spec["volumes"], volume]},
    }


def _with_logging(container: Manifest) -> Manifest:
    variable = {"name": CONFIG_VARIABLE, "value": f"{_FOLDER}/{_FILE}"}
    mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
    return container | {
        "env": [*container["env"], variable],
        "volumeMounts": [*container["volumeMounts"], mount],
    }


def _has_logging_of_its_own(workload: PoolWorkload) -> bool:
    words = (word.replace("_", "-") for word in workload.extra_args)
    return bool({entry.name for entry in workload.env} & USERS_OWN) or any(
        word.startswith(USERS_FLAGS) for word in words
    )


def logging_config(level: str) -> str:
    """vLLM's logging as it is by default, and a second handler for errors.

    `delay` opens the file with the first error only, so that where there is none nothing can fail.
    """
    config: dict[str, Any] = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "vllm": {
                "class": "vllm.logging_utils.NewLineFormatter",
                "datefmt": "%m-%d %H:%M:%S",
                "format": "(%(processName)s pid=%(process)d) %(levelname)s %(asctime)s "
                "[%(filename)s:%(lineno)d] %(message)s",
            },
            "plain": {"format": "%(levelname)s %(message)s"},
        },
        "handlers": {
            "vllm": {
                "class": "logging.StreamHandler",
                "formatter": "vllm",
                "level": level,
                "stream": "ext://sys.stdout",
            },
            "lastWords": {
                "class": "logging.FileHandler",
                "formatter": "plain",
                "level": "ERROR",
                "filename": TERMINATION_LOG,
                "delay": True,
            },
        },
        "loggers": {
            "vllm": {"handlers": ["vllm", "lastWords"], "level": level, "propagate": False}
        },
    }
    return json.dumps(config, separators=(",", ":"))
