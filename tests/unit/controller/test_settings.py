"""What can be set."""

from __future__ import annotations

import pytest

from plimsoll.controller.settings import Settings, read_settings


def test_everything_has_a_default_but_who_we_are() -> None:
    settings = read_settings({}, default_identity="laptop")
    assert Settings(identity="laptop") == settings
    assert () == settings.namespaces


def test_a_pod_knows_its_name_and_its_namespace() -> None:
    settings = read_settings({"POD_NAME": "p", "POD_NAMESPACE": "n"}, default_identity="x")
    assert ("p", "n") == (settings.identity, settings.lease_namespace)


def test_the_command_line_wins_over_the_environment() -> None:
    environment = {
        "PLIMSOLL_NAMESPACES": "a, b",
        "PLIMSOLL_WORKERS": "3",
        "PLIMSOLL_RESYNC_SECONDS": "60",
        "PLIMSOLL_IDENTITY": "env",
        "POD_NAME": "p",
    }
    settings = read_settings(environment, default_identity="x", workers=5, resync_seconds=None)
    assert ("a", "b") == settings.namespaces
    assert (5, 60.0, "env") == (settings.workers, settings.resync_seconds, settings.identity)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PLIMSOLL_WORKERS", "many", "workers"),
        ("PLIMSOLL_HEALTH_PORT", "70000", "health_port"),
        ("PLIMSOLL_LOG_FORMAT", "xml", "log_format"),
        ("PLIMSOLL_LEASE_SECONDS", "5", "two operators could write at once"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(name: str, value: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_settings({name: value}, default_identity="x")
