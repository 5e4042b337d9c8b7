"""What did somebody set for a llama-server that runs, and what does it choose where they did not?"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.llama_cpp.context import DEFAULT_BATCH_TOKENS, DEFAULT_UBATCH_TOKENS
from plimsoll.engines.reading import Default, Reading, Said

FITS_ITSELF: Final = "b7410"
"""First build that lowers what nobody set until it fits into what is free at load
(ggml-org/llama.cpp#16653)."""
AUTO_SLOTS: Final = 4
"""Slots of --parallel auto, which share one cache (ggml-org/llama.cpp#16736)."""
ALL_LAYERS: Final = 1000
"""More than any model has: what `-ngl all` asks for."""
_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._])(?P<type>(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|F16|BF16|F32|MXFP4(?:_MOE)?))(?=$|[-._])",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
_AUTO: Final = frozenset({"auto", "-1"})

BEYOND: Final = {
    "--n-cpu-moe": "experts that stay in host memory",
    "--cpu-moe": "experts that stay in host memory",
    "--n-cpu-ffn": "feed-forward weights that stay in host memory",
    "--moe-cache-mib": "experts that are cached on the card",
    "--override-tensor": "tensors that are placed by hand",
    "--mmproj": "the projector's weights and buffers for images",
    "--mmproj-url": "the projector's weights and buffers for images",
    "--lora": "adapters",
    "--lora-scaled": "adapters",
    "--control-vector": "control vectors",
    "--spec-draft-model": "the draft's weights and cache",
    "--spec-draft-hf": "the draft's weights and cache",
    "--rpc": "cards of other hosts",
    "--main-gpu": "cards that are chosen by hand",
    "--device": "cards that are chosen by hand",
    "--swa-full": "windows kept at full length",
    "--embedding": "logits of a whole batch",
    "--rerank": "logits of a whole batch",
    "--models-dir": "several models in turn",
    "--models-preset": "several models in turn",
    "--override-kv": "other values in the model's header",
}
"""Flags that make the arithmetic of the settings as they are another than ours, and by what."""


class LlamaCppRun(NamedTuple):
    """The settings of one llama-server; None is what nobody wrote."""

    file: str | None = None
    """Path of the GGUF file."""
    repository: str | None = None
    """Repository on the hub, org/name."""
    quantization: str | None = None
    """Type of the file, where its name or the repository's tag says it."""
    alias: str | None = None
    """Name by which clients ask for it."""
    ctx_size: int | None = None
    """Tokens of all slots together; 0 for the model's own length."""
    slots: int | None = None
    """Slots; None for auto."""
    gpu_layers: int | None = None
    """Layers on the cards; None for auto."""
    batch_tokens: int | None = None
    """Logical batch."""
    ubatch_tokens: int | None = None
    """Physical batch."""
    key_type: str = "f16"
    """--cache-type-k."""
    value_type: str = "f16"
    """--cache-type-v."""
    cache_ram_mib: int | None = None
    """Prompt cache in host memory, MiB; -1 has no end."""
    split_mode: str = "layer"
    """How several cards share it."""
    tensor_split: str | None = None
    """Shares of the cards."""
    flash: str | None = None
    """--flash-attn; None for auto."""
    kv_on_card: bool = True
    """Whether the cache lies on the card."""
    fits_itself: bool | None = None
    """--fit."""
    is_unified: bool | None = None
    """Whether all slots share the cells."""
    beyond: tuple[str, ...] = ()
    """Flags of BEYOND that are set."""
    unreadable: tuple[Said, ...] = ()
    """Options whose value is no number."""


def llama_cpp_run(reading: Reading) -> LlamaCppRun:
    """The settings of a command line and its LLAMA_ARG_*."""
    bad: list[Said] = []

    def number(flag: str, words: dict[str, int | None] | None = None, least: int = 1) -> int | None:
        said = reading.last(flag)
        if said is None or said.value is None:
            return None
        text = said.value.lower()
        if words and text in words:
            return words[text]
        if re.fullmatch(r"-?\d{1,12}", text) and int(text) >= least:
            return int(text)
        bad.append(said)
        return None

    auto: dict[str, int | None] = dict.fromkeys(_AUTO)
    repository, _, tag = (reading.value("--hf-repo") or "").partition(":")
    file = reading.value("--model") or reading.value("--hf-file")
    unified = reading.switch("--no-kv-unified")
    flash = reading.last("--flash-attn")
    return LlamaCppRun(
        file=file,
        repository=repository or None,
        quantization=(tag or None) or quantization_in(reading.value("--hf-file") or file or ""),
        alias=(reading.value("--alias") or "").partition(",")[0] or None,
        ctx_size=number("--ctx-size", least=0),
        slots=number("--parallel", auto),
        gpu_layers=number("--n-gpu-layers", auto | {"all": ALL_LAYERS}, least=0),
        batch_tokens=number("--batch-size"),
        ubatch_tokens=number("--ubatch-size"),
        key_type=reading.value("--cache-type-k") or "f16",
        value_type=reading.value("--cache-type-v") or "f16",
        cache_ram_mib=number("--cache-ram", least=-1),
        split_mode=reading.value("--split-mode") or "layer",
        tensor_split=reading.value("--tensor-split"),
        flash=None if flash is None else (flash.value or "on").lower(),
        kv_on_card=reading.switch("--kv-offload") is not False,
        fits_itself=None
        if (fit := reading.value("--fit")) is None
        else fit.lower() not in ("off", "0", "false"),
        is_unified=None if unified is None else not unified,
        beyond=tuple(flag for flag in BEYOND if _is_set(reading, flag)),
        unreadable=tuple(dict.fromkeys(bad)),
    )


def quantization_in(name: str) -> str | None:
    """The type in a file's name: Q4_K_M in Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf; None without one."""
    found = [match["type"] for match in _QUANTIZATION.finditer(stem(name))]
    return found[-1].upper().removeprefix("UD-") if found else None


def stem(name: str) -> str:
    """A file's name without folder, ending and part number."""
    plain = name.rpartition("/")[2]
    return _PART.sub("", plain[:-5] if plain.lower().endswith(".gguf") else plain)


def model_name_in(name: str) -> str:
    """The model's name in a file's or repository's: without type, part and -GGUF."""
    plain = re.sub(r"[-._]GGUF$", "", stem(name), flags=re.IGNORECASE)
    found = list(_QUANTIZATION.finditer(plain))
    return plain[: found[-1].start()] if found else plain


def _is_set(reading: Reading, flag: str) -> bool:
    said = reading.last(flag)
    return said is not None and not said.is_off and said.value != "0"


def choices(
    release: Release, *, longest: int | None, has_slots: bool = False
) -> Iterator[tuple[str, Default]]:
    """The flags that matter with what llama-server chooses; `longest` is the model's length,
    `has_slots` whether --parallel is written.

    Source: tools/server/README.md of llama.cpp, and the builds that engines/llama_cpp/flags.py names.
    """
    fits = not release.is_before(FITS_ITSELF)
    by_itself = "lowered at load until it fits into what is free then"
    yield (
        "--ctx-size",
        Default(
            "the model's" if longest is None else f"{longest} (the model's)",
            by_itself if fits else "",
        ),
    )
    if fits:
        yield "--parallel", Default(f"auto ({AUTO_SLOTS})", "slots that share one cache")
        yield (
            "--no-kv-unified",
            Default(
                "on" if has_slots else "off", "an explicit --parallel gives each its own cells"
            ),
        )
        yield "--n-gpu-layers", Default("auto", by_itself)
        yield "--fit", Default("on", "what nobody set follows what is free at load")
    else:
        yield "--parallel", Default("1")
    yield "--batch-size", Default(str(DEFAULT_BATCH_TOKENS))
    yield "--ubatch-size", Default(str(DEFAULT_UBATCH_TOKENS))
    yield "--flash-attn", Default("auto")
    yield "--cache-type-k", Default("f16")
    yield "--cache-type-v", Default("f16")
    yield "--cache-ram", Default("8192", "MiB of host memory that fill over hours")
    yield (
        "--ctx-checkpoints",
        Default("32", "of each slot, in host memory, for models with windows or states"),
    )
    yield "--warmup", Default("on")
    yield "--metrics", Default("off")
    yield "--slots", Default("on")
