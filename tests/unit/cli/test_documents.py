"""Files of a person, read strictly and complained about exactly."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from plimsoll.cli.documents import read_documents
from plimsoll.cli.exits import BadInputError


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "in.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_several_documents_know_where_they_stood(tmp_path: Path) -> None:
    path = written(tmp_path, "kind: A\n---\nkind: B\n")
    assert [(d.where, d.kind) for d in read_documents([path])] == [
        (f"{path}, document 1", "A"),
        (f"{path}, document 2", "B"),
    ]


def test_a_list_as_kubectl_prints_it_is_taken_apart(tmp_path: Path) -> None:
    path = written(tmp_path, '{"kind": "NodeList", "items": [{"kind": "Node"}, {"kind": "Node"}]}')
    assert [d.where for d in read_documents([path])] == [f"{path}, items[0]", f"{path}, items[1]"]


def test_flow_style_is_yaml_and_not_broken_json(tmp_path: Path) -> None:
    assert [d.body for d in read_documents([written(tmp_path, "{kind: A}")])] == [{"kind": "A"}]


def test_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: A\n"))
    assert [d.where for d in read_documents(["-"])] == ["standard input"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("a: [1\n", "line 2, column 1: not YAML"),
        ("spec:\n  limits: 1\n  limits: 2\n", "line 3: the key 'limits' stands twice"),
        ("just words", "'just words' is not an object"),
        ("kind: List\nitems: [1]\n", "items[0]: '1' is not an object"),
        ("? [a]\n: 1\n", "not YAML"),
    ],
)
def test_a_broken_file_is_named_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInputError) as caught:
        read_documents([path])
    assert str(caught.value).startswith(path)
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.yaml: No such file or directory"):
        read_documents(["nowhere.yaml"])


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"kind: \xe4")
    with pytest.raises(BadInputError, match="not UTF-8 text at byte 6"):
        read_documents([str(path)])


def test_merged_keys_are_no_repetition(tmp_path: Path) -> None:
    path = written(tmp_path, "base: &b {x: 1}\nkind: A\nmore: {<<: *b, y: 2}\n")
    assert read_documents([path])[0].body["more"] == {"x": 1, "y": 2}
