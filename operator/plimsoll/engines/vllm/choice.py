"""Which dtype and which kernels do a model's KV groups get?

Source: vLLM 0.33.0 model_executor/models/config.py (what models ask for themselves), utils/torch_utils.py
(what `auto` means), layers/attention/{attention,mla_attention}.py, models/deepseek_v4/attention.py.
"""

from typing import Final, NamedTuple

from plimsoll.engines.vllm import backends, indexed, kv_dtypes, latents
from plimsoll.engines.vllm.alike import EngineRefusesError
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.kernels import Kernel, Layer, Situation
from plimsoll.engines.vllm.split import PLAIN_KINDS
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts

_QUANTIZED_KINDS: Final = (*PLAIN_KINDS, KvKind.MLA)
"""Kinds that --kv-cache-dtype-skip-layers may spare."""
_GEMMA4: Final = ("Gemma4", "EmbeddingGemma2", "DiffusionGemma")
"""Models whose heads differ in width; FlashAttention 4 then runs all of them where it can."""
_WITH_SINKS: Final = ("GptOss",)
"""Models with a learned attention sink, which some kernels do not take."""
_WITH_ALIBI: Final = ("Bloom", "MPT", "JAIS")
"""Models whose attention is biased by distance."""
_FP8_ON_BLACKWELL: Final = ("GlmMoeDsaForCausalLM", "Glm5NextForCausalLM")
"""Models that keep KV in fp8 on compute capability 10 when nobody asks otherwise."""
_ALWAYS_AUTO: Final = ("FalconForCausalLM", "RWForCausalLM")
"""Models that give their layers no cache settings, so that a KV dtype is taken and changes nothing
(models/falcon.py)."""
_TURBOQUANT_SPARED: Final = 2
"""Layers at each end that TurboQuant leaves in the model's dtype, unless the model is a hybrid."""


class Shape(NamedTuple):
    """Layers of one group that are kept the same way."""

    group: KvGroup
    kv_dtype: str
    """The cache's dtype for these layers, as the kernel makes it."""
    kernel: Kernel | None
    """None for recurrent layers, which bring their own."""


def resolved_dtype(model: ModelFacts, ask: KvAsk) -> str:
    """What `auto` comes to: the checkpoint's wish, or the model's own default on this card.

    Raises EngineRefusesError.
    """
    kinds = {group.kind for group in model.kv_groups}
    asked = model.kv_dtype if ask.kv_dtype == "auto" else ask.kv_dtype
    if asked not in kv_dtypes.KNOWN:
        raise EngineRefusesError(
            f"a KV cache in {asked} is not known to vLLM on NVIDIA cards; "
            f"it knows {', '.join(kv_dtypes.KNOWN)}"
        )
    if KvKind.COMPRESSED_MLA in kinds:
        if asked != "auto" and not asked.startswith("fp8"):
            raise EngineRefusesError(f"compressed latents are kept in fp8, not in {asked}")
        return "fp8_ds_mla"
    if asked == "auto" and model.architecture in _FP8_ON_BLACKWELL and ask.capability[0] == 10:
        return "fp8_e4m3"
    if KvKind.INDEXER in kinds and asked == "bfloat16":
        return "auto"
    if asked in ("bfloat16", "float16") and asked != model.dtype:
        raise EngineRefusesError(
            f"a KV cache in {asked} needs a model in {asked}; this one computes in {model.dtype}"
        )
    return asked


def spared_layers(model: ModelFacts, ask: KvAsk, kv_dtype: str) -> frozenset[str]:
    """Layers that stay unquantised, by index or as `sliding_window`."""
    spared = set(ask.skip_layers)
    if kv_dtype in kv_dtypes.TURBOQUANT and not is_hybrid(model):
        ends = min(_TURBOQUANT_SPARED, model.layers // 2)
        spared |= {str(n) for n in (*range(ends), *range(model.layers - ends, model.layers))}
    return frozenset(spared)


def layer_dtype(model: ModelFacts, kv_dtype: str, *, spared: bool) -> str:
    """What one layer is asked to keep: the cache's dtype, or the model's own where it is spared."""
    return "auto" if spared or model.architecture in _ALWAYS_AUTO else kv_dtype


def is_spared(layer: int, group: KvGroup, spared: frozenset[str]) -> bool:
    """Whether this layer of this group stays unquantised."""
    if group.kind not in _QUANTIZED_KINDS:
        return False
    return str(layer) in spared or (group.kind is KvKind.SLIDING and "sliding_window" in spared)


def is_hybrid(model: ModelFacts) -> bool:
    """Whether recurrent layers stand beside attention."""
    return any(group.kind is KvKind.RECURRENT for group in model.kv_groups)


def situation(model: ModelFacts, ask: KvAsk, kv_dtype: str) -> Situation:
    """What a kernel's choice depends on beside the layer."""
    widths = {g.key_dim for g in model.kv_groups if g.kind in _QUANTIZED_KINDS}
    at = Situation(
        capability=ask.capability,
        model_head_dim=max(widths, default=0),
        kv_dtype=kv_dtype,
        block_tokens=ask.block_tokens,
        has_flashinfer=ask.has_flashinfer,
        is_soft_capped=model.soft_capped,
        is_prefix_lm=model.prefix_lm and not ask.is_text_only,
        dcp=ask.dcp,
        flash_attention=2 if kv_dtype in kv_dtypes.TURBOQUANT else None,
        has_sinks=model.architecture.startswith(_WITH_SINKS),
        has_alibi=model.architecture.startswith(_WITH_ALIBI),
        query_heads=model.attention_heads // ask.tp,
        is_sparse={KvKind.INDEXER, KvKind.MLA} <= {group.kind for group in model.kv_groups},
    )
    if model.architecture.startswith(_GEMMA4) and len(widths) > 1 and at.has_fa4:
        is_per_layer = at.major == 9 and kv_dtype.startswith("fp8")
        return at if is_per_layer else at._replace(flash_attention=4)
    return at


def shape(group: KvGroup, kv_dtype: str, at: Situation, *, is_indexed: bool) -> Shape:
    """The kernel of a group's layers and the dtype it keeps. Raises EngineRefusesError.

    `is_indexed`: an index picks blocks of these plain heads.
    """
    match group.kind:
        case KvKind.RECURRENT:
            return Shape(group, kv_dtype, None)
        case KvKind.INDEXER:
            return Shape(group, kv_dtype, latents.INDEXER if at.is_sparse else indexed.INDEX)
        case KvKind.COMPRESSED_MLA:
            if at.major not in latents.V4_MAJORS:
                raise EngineRefusesError(_no_kernel(group, kv_dtype, at))
            return Shape(group, kv_dtype, latents.V4_LATENT)
    layer = Layer(
        head_dim=group.key_dim,
        value_dim=group.value_dim,
        kv_dtype=kv_dtype,
        is_mla=group.kind is KvKind.MLA,
        has_window=group.window_tokens is not None,
    )
    kernel = indexed.heads(layer, at) if is_indexed else backends.choose(layer, at)
    if kernel is None:
        raise EngineRefusesError(_no_kernel(group, kv_dtype, at))
    return Shape(group, _as_kept(kv_dtype, kernel), kernel)


def _as_kept(kv_dtype: str, kernel: Kernel) -> str:
    """FlashMLA's sparse kernel and that of compute capability 12 keep fp8 in the ds_mla layout."""
    if kernel.name == "FLASHINFER_MLA_SPARSE_SM120":
        return "fp8_ds_mla"
    is_plain_fp8 = kv_dtypes.is_quantized(kv_dtype) and kv_dtype != "nvfp4_ds_mla"
    return "fp8_ds_mla" if kernel.name == "FLASHMLA_SPARSE" and is_plain_fp8 else kv_dtype


def _no_kernel(group: KvGroup, kv_dtype: str, at: Situation) -> str:
    where = f"compute capability {at.capability[0]}.{at.capability[1]}"
    block = f", in blocks of {at.block_tokens} tokens" if at.block_tokens else ""
    shared = f", under decode context parallelism {at.dcp}" if at.dcp > 1 else ""
    return (
        f"no attention kernel takes {group.kind} layers {group.key_dim} wide with a KV cache in "
        f"{kv_dtype} on {where}{block}{shared}"
    )


def distinct_kernels(shapes: list[Shape]) -> tuple[Kernel, ...]:
    """Kernels in layer order, each once; recurrent layers' own do not count."""
    found: dict[str, Kernel] = {}
    for used in dict.fromkeys(shapes):
        for kernel in _kernels_of(used):
            found.setdefault(kernel.name, kernel)
    return tuple(found.values())


def _kernels_of(used: Shape) -> tuple[Kernel, ...]:
    if used.kernel is None:
        return ()
    if used.group.kind is not KvKind.COMPRESSED_MLA:
        return (used.kernel,)
    index = (latents.V4_INDEXER,) if used.group.index_dim else ()
    latent = (latents.V4_LATENT, latents.V4_COMPRESSOR) if used.group.compress_ratio else ()
    return (*index, latents.V4_WINDOW, *latent)
