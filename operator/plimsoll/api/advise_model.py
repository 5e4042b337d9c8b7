"""Which public model is it that an engine loads from a path, a repository or a file?"""

import re
from typing import Final, NamedTuple

from plimsoll.api.advise_pod import Workload, address_of
from plimsoll.catalog.models import find_gguf, find_model, known_ids
from plimsoll.engines.llama_cpp.running import LlamaCppRun, model_name_in
from plimsoll.engines.vllm.running import VllmRun

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
_CACHED: Final = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
"""A repository's folder in the hub's cache (huggingface_hub file_download.py)."""


class Identity(NamedTuple):
    """The model as far as it can be told."""

    id: str | None = None
    """Public identity, org/name."""
    address: str | None = None
    """Where its files are: hf://, pvc://, hostPath:// or oci://."""
    quantization: str | None = None
    """Type of a GGUF file."""
    served: str = ""
    """Name by which clients ask for it."""
    told_by: str = ""
    """What says which model it is."""
    is_guess: bool = False
    """Whether only a file's or folder's name says it."""
    written: str = ""
    """What the engine is told to load."""


def of_vllm(run: VllmRun, workload: Workload, given: str | None = None) -> Identity:
    """What `vllm serve` loads; `given` is the user's own word on which model that is."""
    written = run.model or ""
    served = next(iter(run.served), "") or workload.name
    base = Identity(served=served, written=written)
    is_path = written.startswith(("/", "./"))
    address = address_of(workload, written) if is_path else None
    if not is_path and _REPOSITORY.match(written):
        revision = f"@{run.revision}" if run.revision else ""
        base = base._replace(
            id=written,
            address=f"hf://{written}{revision}",
            told_by="the model that it is told to load",
        )
    else:
        base = _by_address(base, address)
        if base.id is None:
            base = _by_path(base, (address or "").partition("@")[0], written, *run.served)
    return _as_given(base, given)


def of_llama_cpp(run: LlamaCppRun, workload: Workload, given: str | None = None) -> Identity:
    """What llama-server loads."""
    written = run.file or run.repository or ""
    base = Identity(
        served=run.alias or workload.name, written=written, quantization=run.quantization
    )
    address = None
    if run.file and run.file.startswith(("/", "./")):
        address = address_of(workload, run.file)
    elif run.repository and run.file:
        address = f"hf://{run.repository}/{run.file}"
    base = base._replace(address=address)
    if run.repository and run.quantization is None:
        base = base._replace(
            quantization="Q4_K_M"
        )  # llama.cpp's own choice (tools/server/README.md, -hf)
    names = [model_name_in(name) for name in (run.file or "", run.repository or "") if name]
    for name in names:
        found = _known(name, base.quantization)
        if found is not None:
            base = base._replace(id=found, told_by=f"the name {name!r}", is_guess=True)
            break
    return _as_given(base, given)


def _by_address(base: Identity, address: str | None) -> Identity:
    """The repository that KServe's storage initializer fetched."""
    if address is None:
        return base
    scheme, _, rest = address.partition("://")
    if scheme != "hf":
        return base._replace(address=address)
    return base._replace(
        address=address,
        id=rest.partition("@")[0],
        told_by="the address that its files are fetched from",
    )


def _by_path(base: Identity, *paths: str) -> Identity:
    """A folder named like a model of the catalogue."""
    for path in paths:
        parts = [
            part for part in path.partition("://")[2 if "://" in path else 0].split("/") if part
        ]
        cached = _CACHED.search(path)
        if cached is not None:
            name = f"{cached['owner']}/{cached['name']}"
            return base._replace(id=name, told_by="its folder in the hub's cache")
        for name in ("/".join(parts[-2:]), parts[-1] if parts else ""):
            found = _known(name)
            if found is not None:
                return base._replace(id=found, told_by=f"the name {name!r}", is_guess=True)
    return base


def _known(name: str, quantization: str | None = None) -> str | None:
    """The model of the catalogue that goes by this name, with or without its owner; None for several."""
    wanted = name.lower()
    if not wanted:
        return None
    spelled = [
        each for each in known_ids() if wanted in (each.lower(), each.partition("/")[2].lower())
    ]
    if quantization is not None:
        spelled += [each for each in _gguf_names(wanted, quantization) if each not in spelled]
    return spelled[0] if len({each.partition("/")[2].lower() for each in spelled}) == 1 else None


def _gguf_names(wanted: str, quantization: str) -> list[str]:
    owners = {each.partition("/")[0] for each in known_ids()}
    tries = [f"{owner}/{wanted}" for owner in sorted(owners)]
    return [found.id for each in tries if (found := find_gguf(each, quantization)) is not None]


def _as_given(base: Identity, given: str | None) -> Identity:
    if given is None:
        return base
    known = find_model(given)
    return base._replace(id=getattr(known, "id", given), told_by="--model", is_guess=False)
