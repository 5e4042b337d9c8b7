"""A report fits in a termination message, and comes back as it went."""

from __future__ import annotations

import pytest

import worlds
from plimsoll.catalog.models import find_model, known_ids
from plimsoll.facts.inspection import (
    MESSAGE_LIMIT_BYTES,
    InspectionReport,
    read_report,
    refusal_report,
)
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts


def test_facts_come_back_as_they_went() -> None:
    report = InspectionReport(model=worlds.model(worlds.SEVENTY_B), fingerprint="sha256:1")
    assert report == read_report(report.to_message())


def test_a_gguf_file_of_80_blocks_fits() -> None:
    report = InspectionReport(gguf=worlds.gguf(worlds.SEVENTY_B, "Q4_K_M"), fingerprint="sha256:1")
    message = report.to_message()
    assert len(message.encode()) <= MESSAGE_LIMIT_BYTES
    assert report == read_report(message)


def test_a_long_report_is_packed_and_comes_back() -> None:
    groups = tuple(
        KvGroup(
            kind=KvKind.SLIDING,
            layers=61,
            kv_heads=8,
            key_dim=128 + number,
            value_dim=128,
            window_tokens=1024,
            at=tuple(range(number, 600, 24)),
        )
        for number in range(24)
    )
    facts = worlds.model(worlds.SEVENTY_B).model_copy(update={"kv_groups": groups})
    report = InspectionReport(model=facts, fingerprint="sha256:1")
    message = report.to_message()
    assert message.startswith("zlib:")
    assert len(message.encode()) <= MESSAGE_LIMIT_BYTES
    assert report == read_report(message)


def test_what_is_no_report_is_none() -> None:
    message = InspectionReport(gguf=worlds.gguf(worlds.SEVENTY_B, "Q4_K_M")).to_message()
    for text in ("", "Killed", "{}", "zlib:%%%", "zlib:", message[:-1], '{"refused": 7}'):
        assert read_report(text) is None


def test_a_long_refusal_is_cut_to_fit() -> None:
    report = refusal_report("ä" * 10_000)
    assert len(report.to_message().encode()) <= MESSAGE_LIMIT_BYTES
    assert report.refused.endswith("...")
    assert report == read_report(report.to_message())


def test_a_report_says_one_thing() -> None:
    with pytest.raises(ValueError, match="facts of one source"):
        InspectionReport()
    facts = worlds.model(worlds.EIGHT_B)
    with pytest.raises(ValueError, match="facts of one source"):
        InspectionReport(model=facts, refused="and yet")


def test_every_model_of_the_catalogue_fits() -> None:
    known = [facts for name in known_ids() if isinstance(facts := find_model(name), ModelFacts)]
    assert len(known) > 30
    for facts in known:
        message = InspectionReport(model=facts).to_message()
        assert len(message.encode()) <= MESSAGE_LIMIT_BYTES, facts.id
