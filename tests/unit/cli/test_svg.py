"""The card as a file, read by an XML parser that is not ours."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from plimsoll.cli.answers import Answer
from plimsoll.cli.svg import BAR_WIDTH, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_it_is_well_formed_and_names_itself(answers: tuple[Answer, ...]) -> None:
    root = ET.fromstring(svg(answers))
    assert f"{SVG}svg" == root.tag
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "Weights 14.96 GiB" in (description.text or "")
    assert "20 sequences of 8,192 tokens need 20.0 GiB" in (description.text or "")


def test_areas_are_in_proportion_and_fill_the_bar(answers: tuple[Answer, ...]) -> None:
    root = ET.fromstring(svg(answers[:1]))
    widths = {
        (rect.findtext(f"{SVG}title") or "").partition(":")[0]: float(rect.get("width", "0"))
        for rect in root.iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    }
    assert pytest.approx(BAR_WIDTH, abs=0.05) == sum(widths.values())
    assert pytest.approx(BAR_WIDTH * 15317 / 24564, abs=0.01) == widths["Weights"]


def test_nothing_is_drawn_outside(answers: tuple[Answer, ...]) -> None:
    root = ET.fromstring(svg(answers))
    height = float(root.get("height", "0"))
    assert all(float(text.get("y", "0")) < height for text in root.iter(f"{SVG}text"))


def test_words_are_escaped(answers: tuple[Answer, ...]) -> None:
    plain = answers[0]
    odd = plain._replace(pool="<script>&\"'\x07")
    root = ET.fromstring(svg([odd]))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "inference/plant, pool <script>&\"'\ufffd" in texts


def test_equal_plans_give_equal_bytes(answers: tuple[Answer, ...]) -> None:
    again = tuple(answer._replace(outcome=answer.outcome.model_copy()) for answer in answers)
    assert svg(answers).encode() == svg(again).encode()
