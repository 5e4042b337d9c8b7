"""vLLM's errors reach the termination message, and who has a logging of their own keeps it."""

from __future__ import annotations

import json
import logging.config
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scenes
from plimsoll.render.last_words import (
    CONFIG_VARIABLE,
    LOGGING_ANNOTATION,
    TERMINATION_LOG,
    logging_config,
    pod_template_2,
)
from plimsoll.render.pod import pod_template_1
from plimsoll.render.records import EnvVar, PoolWorkload

DIGEST = "sha256:0"


def engine(pods: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pods["spec"]["containers"][0]
    return found


def test_the_file_that_the_variable_names_is_made_of_the_annotation(vllm: PoolWorkload) -> None:
    pods = pod_template_2(vllm, DIGEST)
    (variable,) = (e for e in engine(pods)["env"] if e["name"] == CONFIG_VARIABLE)
    (mount,) = (m for m in engine(pods)["volumeMounts"] if m["name"] == "logging")
    (volume,) = (v for v in pods["spec"]["volumes"] if v["name"] == "logging")
    (item,) = volume["downwardAPI"]["items"]
    assert variable["value"] == f"{mount['mountPath']}/{item['path']}"
    assert f"metadata.annotations['{LOGGING_ANNOTATION}']" == item["fieldRef"]["fieldPath"]
    assert LOGGING_ANNOTATION in pods["metadata"]["annotations"]


def test_llama_server_is_one_process_and_needs_none_of_it(llama_cpp: PoolWorkload) -> None:
    assert pod_template_1(llama_cpp, DIGEST) == pod_template_2(llama_cpp, DIGEST)


@pytest.mark.parametrize("name", [CONFIG_VARIABLE, "VLLM_CONFIGURE_LOGGING"])
def test_a_logging_of_the_users_own_is_left_alone(vllm: PoolWorkload, name: str) -> None:
    own = vllm.model_copy(update={"env": (EnvVar(name=name, value="0"),)})
    assert pod_template_1(own, DIGEST) == pod_template_2(own, DIGEST)


def test_a_logging_that_arguments_ask_for_is_left_alone(vllm: PoolWorkload) -> None:
    own = vllm.model_copy(update={"extra_args": ("--logging_config.formatter", "json")})
    assert pod_template_1(own, DIGEST) == pod_template_2(own, DIGEST)


def test_the_users_level_counts_for_what_is_shown(vllm: PoolWorkload) -> None:
    chatty = vllm.model_copy(update={"env": (EnvVar(name="VLLM_LOGGING_LEVEL", value="debug"),)})
    config = json.loads(
        pod_template_2(chatty, DIGEST)["metadata"]["annotations"][LOGGING_ANNOTATION]
    )
    assert "DEBUG" == config["handlers"]["vllm"]["level"] == config["loggers"]["vllm"]["level"]
    assert "ERROR" == config["handlers"]["lastWords"]["level"]


def test_pythons_own_logging_writes_errors_there_and_nothing_else(tmp_path: Path) -> None:
    """In a process of its own: a logging that is configured stays so."""
    config = json.loads(logging_config("INFO").replace(TERMINATION_LOG, str(tmp_path / "words")))
    config["formatters"]["vllm"]["class"] = "logging.Formatter"
    program = (
        "import json, logging, logging.config, sys\n"
        "logging.config.dictConfig(json.loads(sys.argv[1]))\n"
        "log = logging.getLogger('vllm.v1.engine.core')\n"
        "log.info('all is well')\n"
        "try:\n    raise ValueError('No available memory for the cache blocks.')\n"
        "except ValueError:\n    log.exception('EngineCore failed to start.')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program, json.dumps(config)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    words = (tmp_path / "words").read_text(encoding="utf-8")
    assert "all is well" in shown
    assert "all is well" not in words
    assert words.startswith("ERROR EngineCore failed to start.\nTraceback")
    assert words.endswith("ValueError: No available memory for the cache blocks.\n")


def test_nothing_is_opened_before_there_is_an_error(tmp_path: Path) -> None:
    config = json.loads(
        logging_config("INFO").replace(TERMINATION_LOG, str(tmp_path / "no" / "words"))
    )
    config["formatters"]["vllm"]["class"] = "logging.Formatter"
    configurator = logging.config.DictConfigurator(config)
    assert configurator.config["handlers"]["lastWords"]["delay"] is True


def test_a_pool_that_is_there_keeps_its_template_over_the_upgrade() -> None:
    raw = scenes.example("mixed-fleet")
    raw, _ = scenes.applied(raw, scenes.think(raw))
    assert raw["status"]["pools"]
    for pool in raw["status"]["pools"]:
        pool["templateRevision"] = 1
    kept = scenes.deployments(scenes.think(raw)).values()
    assert all("plimsoll.dev/vllm-logging" not in str(each) for each in kept)
    fresh = scenes.deployments(scenes.think(scenes.example("mixed-fleet"))).values()
    assert any("plimsoll.dev/vllm-logging" in str(each) for each in fresh)
