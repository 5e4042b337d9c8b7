"""Do the forms take what people write, and nothing else?"""

from __future__ import annotations

import pytest

from plimsoll.api import forms
from plimsoll.api.forms import GGUF_URI, MODEL_URI, Form, ManifestError
from plimsoll.render.source import parse_source
from plimsoll.units import parse_bytes, parse_seconds


def form_of(alias: object) -> Form:
    found: Form = alias.__metadata__[0]  # type: ignore[attr-defined]
    return found


GOOD = (
    (MODEL_URI, "hf://org/name"),
    (MODEL_URI, "hf://org/name@v1.0"),
    (MODEL_URI, "pvc://models"),
    (MODEL_URI, "pvc://models/a/b"),
    (MODEL_URI, "hostPath:///srv/models/Meta-Llama-3-8B"),
    (MODEL_URI, "oci://registry.local:5000/models/llama:1"),
    (MODEL_URI, "oci://registry.local:5000/models/llama:1#/llama"),
    (GGUF_URI, "hf://org/name@main/folder/file-Q6_K.gguf"),
    (GGUF_URI, "pvc://models/file.gguf"),
    (GGUF_URI, "hostPath:///srv/file-00001-of-00003.gguf"),
    (GGUF_URI, "oci://registry.local/llama:1#/file.gguf"),
    (form_of(forms.Bytes), "200Mi"),
    (form_of(forms.Bytes), "1.5Gi"),
    (form_of(forms.Bytes), 0),
    (form_of(forms.Cpus), "1500m"),
    (form_of(forms.Cpus), 8),
    (form_of(forms.Cpus), "0.5"),
    (form_of(forms.Duration), "1h30m"),
    (form_of(forms.Duration), "24h"),
    (form_of(forms.Duration), "5m10s"),
    (form_of(forms.Percent), "100%"),
    (form_of(forms.TimeOfDay), "23:59"),
    (form_of(forms.Image), "registry.local:5000/vllm@sha256:0123"),
    (form_of(forms.ReleaseText), "0.22.1"),
    (form_of(forms.ReleaseText), "b11434"),
    (form_of(forms.LabelValue), "NVIDIA-A30-MIG-1g.6gb"),
    (form_of(forms.DnsLabel), "a6000-tp4"),
)

BAD = (
    (MODEL_URI, "file:///srv"),
    (MODEL_URI, "hf://name"),
    (MODEL_URI, "hostPath://srv"),
    (MODEL_URI, "pvc://Models/a"),
    (MODEL_URI, "pvc://models/../secrets"),
    (MODEL_URI, "hostPath:///srv/./x"),
    (MODEL_URI, "hf://org/name\n"),
    (GGUF_URI, "pvc://models/file.bin"),
    (GGUF_URI, "oci://registry.local/llama:1"),
    (form_of(forms.Bytes), "-1"),
    (form_of(forms.Bytes), -1),
    (form_of(forms.Bytes), "5GB"),
    (form_of(forms.Bytes), True),
    (form_of(forms.Bytes), 1.5),
    (form_of(forms.Cpus), "4 cores"),
    (form_of(forms.Duration), ""),
    (form_of(forms.Duration), "5"),
    (form_of(forms.Duration), "5s1m"),
    (form_of(forms.Percent), "0%"),
    (form_of(forms.Percent), "101%"),
    (form_of(forms.TimeOfDay), "24:00"),
    (form_of(forms.DnsLabel), "-a"),
    (form_of(forms.DnsLabel), "a" * 41),
    (form_of(forms.DnsLabel), None),
)


@pytest.mark.parametrize(("form", "text"), GOOD, ids=lambda value: str(value)[:40])
def test_what_people_write_is_taken_as_it_is(form: Form, text: str | int) -> None:
    assert text == form.check(text)


@pytest.mark.parametrize(("form", "text"), BAD, ids=lambda value: repr(value)[:40])
def test_anything_else_is_answered_with_the_way_out(form: Form, text: object) -> None:
    with pytest.raises(ManifestError, match="write ") as caught:
        form.check(text)
    assert form.says in str(caught.value)


@pytest.mark.parametrize("text", ["0", "200Mi", "1.5Gi", "3k", "7Ti"])
def test_every_size_that_is_taken_can_be_counted(text: str) -> None:
    form_of(forms.Bytes).check(text)
    assert parse_bytes(text) >= 0


@pytest.mark.parametrize("text", ["90s", "5m", "1h30m", "1h5s", "2h3m4s"])
def test_every_duration_that_is_taken_can_be_counted(text: str) -> None:
    form_of(forms.Duration).check(text)
    assert parse_seconds(text) > 0


@pytest.mark.parametrize(
    "uri", [text for form, text in GOOD if form in {MODEL_URI, GGUF_URI} and isinstance(text, str)]
)
def test_every_address_that_is_taken_can_be_mounted(uri: str) -> None:
    assert uri == parse_source(uri).uri
