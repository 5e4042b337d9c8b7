"""In which forms do people write names, addresses, sizes and times, and what do we say to other forms?

Each form is one pattern with one sentence. Python checks it when a manifest is read, the API server
checks the same pattern as a CEL rule, and both say the same sentence. The patterns keep to what Python's
`re` and RE2 read alike.
"""

import re
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

Json = dict[str, Any]


class ManifestError(ValueError):
    """Something in a manifest that cannot be, in our own words: the value and the way out."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """Path below the place where it was found, e.g. ".p50" or "[1].name"."""


class Form(NamedTuple):
    """A pattern for the whole text, the longest text, and the sentence for everything else."""

    pattern: str
    """Regular expression without anchors: it is matched against the whole text."""
    says: str
    """What to write, e.g. "write a duration such as 90s, 5m or 1h30m"."""
    max_length: int
    """The longest text, in characters."""
    also_integer: bool = False
    """Whether a bare, non-negative number is fine too (`cpu: 2`)."""
    forbidden: str = ""
    """Regular expression that must match nowhere."""

    @property
    def whole(self) -> str:
        """The pattern with its anchors."""
        return f"^({self.pattern})$"

    def check(self, value: object, *, field: str = "") -> str | int:
        """The value itself. Raises with the value and the way out, blaming `field`."""
        if self.also_integer and isinstance(value, int) and not isinstance(value, bool):
            text = str(value)
        elif isinstance(value, str):
            text = value
        else:
            raise ManifestError(f"{value!r} is not text; {self.says}", field=field)
        if len(text) > self.max_length:
            shown = text[:40] + "..."
            raise ManifestError(
                f"{shown!r} has {len(text)} characters, at most {self.max_length} are read; {self.says}",
                field=field,
            )
        if not re.fullmatch(self.pattern, text) or (
            self.forbidden and re.search(self.forbidden, text)
        ):
            raise ManifestError(f"{text!r} cannot be read; {self.says}", field=field)
        return value

    def _read(self, value: object) -> str | int:
        return self.check(value)

    def cel(self) -> Json:
        """The same check as a rule for the API server."""
        text = "string(self)" if self.also_integer else "self"
        rule = f"{text}.matches({cel_text(self.whole)})"
        if self.forbidden:
            rule += f" && !{text}.matches({cel_text(self.forbidden)})"
        return {"rule": rule, "message": f"cannot be read; {self.says}"}

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Json:
        kind: Json = (
            {"x-kubernetes-int-or-string": True} if self.also_integer else {"type": "string"}
        )
        return kind | {"maxLength": self.max_length, "x-kubernetes-validations": [self.cel()]}


def cel_text(text: str) -> str:
    """As a raw CEL string."""
    return "r'" + text + "'"


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}([.]{_LABEL})*"
_REPO: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
_REVISION: Final = r"(@[A-Za-z0-9][A-Za-z0-9._-]*)?"
_IMAGE: Final = r"[a-z0-9][A-Za-z0-9._:/@-]*"
_PATH: Final = r"(/[A-Za-z0-9._+=@-]+)+"
_UPWARD: Final = r"/[.][.]?(/|$)"
"""Path segments that walk upward, or nowhere."""

MODEL_URI: Final = Form(
    rf"hf://{_REPO}{_REVISION}|pvc://{_SUBDOMAIN}({_PATH})?/?|hostPath://{_PATH}/?"
    rf"|oci://{_IMAGE}(#{_PATH}/?)?",
    "write hf://org/name[@revision], pvc://claim/folder, hostPath:///folder or oci://image[#/folder]",
    512,
    forbidden=_UPWARD,
)
GGUF_URI: Final = Form(
    rf"(hf://{_REPO}{_REVISION}{_PATH}|pvc://{_SUBDOMAIN}{_PATH}|hostPath://{_PATH}|oci://{_IMAGE}#{_PATH})[.]gguf",
    "write the file's address: hf://org/name[@revision]/file.gguf, pvc://claim/folder/file.gguf, "
    "hostPath:///folder/file.gguf or oci://image#/file.gguf",
    512,
    forbidden=_UPWARD,
)

ModelUri = Annotated[str, MODEL_URI]
"""Where a model's folder is."""
GgufUri = Annotated[str, GGUF_URI]
"""Where a GGUF file is."""
DnsLabel = Annotated[
    str,
    Form(_LABEL, "write lower-case letters, digits and -, with a letter or digit at both ends", 40),
]
"""A name that becomes part of object names, so shorter than the 63 that DNS allows."""
ObjectName = Annotated[
    str, Form(_SUBDOMAIN, "write the object's name: lower-case letters, digits, - and .", 253)
]
"""Name of another object in the same namespace."""
LabelValue = Annotated[
    str,
    Form(
        r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
        "write it as in the node label, e.g. NVIDIA-RTX-A6000",
        63,
    ),
]
"""Value of a node label."""
ServedName = Annotated[
    str,
    Form(
        r"[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?",
        "write the name that clients send, e.g. llama-3.3-70b: letters, digits and . _ : / -",
        128,
    ),
]
"""The name by which clients ask for the model."""
ModelId = Annotated[str, Form(_REPO, "write org/name, e.g. meta-llama/Llama-3.3-70B-Instruct", 200)]
"""The public identity of a model."""
GgufType = Annotated[str, Form(r"[A-Za-z0-9_]+", "write the file's type, e.g. Q6_K or Q4_K_M", 32)]
"""Type of a GGUF file."""
Image = Annotated[
    str, Form(_IMAGE, "write an image with its tag, e.g. vllm/vllm-openai:v0.22.1", 512)
]
"""A container image."""
ReleaseText = Annotated[
    str,
    Form(
        r"v?[0-9][A-Za-z0-9.+-]*|b[0-9]+", "write the engine's release, e.g. 0.22.1 or b11434", 32
    ),
]
"""Release of an engine, where the image's tag does not tell."""
Bytes = Annotated[
    str | int,
    Form(
        r"[0-9]{1,15}([.][0-9]{1,6})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?",
        "write a size such as 512Mi or 8Gi, not below 0",
        24,
        also_integer=True,
    ),
]
"""Bytes as a Kubernetes quantity."""
Cpus = Annotated[
    str | int,
    Form(
        r"[0-9]{1,6}([.][0-9]{1,3})?|[0-9]{1,9}m",
        "write cores such as 4 or 1500m, not below 0",
        12,
        also_integer=True,
    ),
]
"""CPU cores as a Kubernetes quantity."""
Duration = Annotated[
    str,
    Form(
        r"[0-9]{1,6}h([0-9]{1,6}m)?([0-9]{1,6}s)?|[0-9]{1,6}m([0-9]{1,6}s)?|[0-9]{1,6}s",
        "write a duration such as 90s, 5m or 1h30m",
        24,
    ),
]
"""A length of time."""
Percent = Annotated[
    str, Form(r"100%|[1-9][0-9]?%", "write a whole percentage from 1% to 100%, e.g. 70%", 4)
]
"""A part of the whole."""
TimeOfDay = Annotated[
    str, Form(r"([01][0-9]|2[0-3]):[0-5][0-9]", "write a time of day in UTC, e.g. 22:30", 5)
]
"""Hours and minutes, UTC."""
EnvName = Annotated[
    str, Form(r"[A-Za-z_][A-Za-z0-9_]*", "write a variable's name: letters, digits and _", 128)
]
"""Name of an environment variable."""
SecretKey = Annotated[
    str, Form(r"[A-Za-z0-9._-]+", "write the key inside the object: letters, digits and . _ -", 253)
]
"""A key inside a Secret or ConfigMap."""
LabelKey = Annotated[
    str,
    Form(
        r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
        "write a label's key, e.g. example.com/team",
        316,
    ),
]
"""Key of a label, annotation or taint."""

Count = Annotated[int, Field(strict=True)]
"""A whole number, and no text that looks like one: the API server is as strict."""
Flagged = Annotated[bool, Field(strict=True)]
"""true or false, and nothing that could pass for it."""
Sentence = Annotated[str, Field(max_length=4096)]
"""Text without a form."""
