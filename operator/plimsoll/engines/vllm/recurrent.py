"""How many bytes is a recurrent layer's state on one card, and how many blocks does a sequence hold?

Source: vLLM 0.33.0 model_executor/layers/mamba/mamba_utils.py (shapes and dtypes), abstract.py,
mamba_mixer2.py, gdn/qwen_gdn_linear_attn.py, kda_checkpoint.py and models/kimi_k3/nvidia/kda.py
(checkpoints inside a prefill).
"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm.kv_dtypes import dtype_bytes
from plimsoll.facts.model import RecurrentKind, RecurrentState

CHECKPOINTS_SINCE: Final = {
    RecurrentKind.KIMI_DELTA: "0.29",
    RecurrentKind.MAMBA2: "0.31",
    RecurrentKind.GATED_DELTA: "0.31",
}
"""First release whose prefill may leave a checkpoint, which is one more block: vllm-project/vllm#52789
(August 2026) for KDA, #57329 (September 2026) for Mamba 2."""
DELTA_CHECKPOINT_TOKENS: Final = 64
"""Checkpoints of FlashInfer's delta-net prefill lie on multiples of this (gdn_attn.py)."""


class StateDoesNotDivideError(ValueError):
    """Says which width cannot be split over the cards."""


class Checkpoints(NamedTuple):
    """What a prefill leaves behind for the prefix cache."""

    blocks: int = 0
    """Blocks beyond the running state and its predecessor."""
    alignment_tokens: int = 1
    """Blocks are a multiple of this many tokens."""


def state_bytes(state: RecurrentState, *, cards: int, model_dtype: str, drafts: int = 0) -> int:
    """One layer's state of one sequence on one card.

    Qwen3-Next: 3 x 8192 convolution values and 32 heads of 128 x 128, 2 B each, are 1,097,728 B.
    """
    conv_dtype = model_dtype if state.conv_dtype == "auto" else state.conv_dtype
    state_dtype = state.state_dtype
    if state_dtype == "auto":
        state_dtype = "float32" if state.kind is RecurrentKind.KIMI_DELTA else conv_dtype
    conv, inner = _values(state, cards, drafts)
    return conv * dtype_bytes(conv_dtype) + inner * dtype_bytes(state_dtype)


def _values(state: RecurrentState, cards: int, drafts: int) -> tuple[int, int]:
    """Values of the convolution's tail and of the recurrence, on one card."""
    taps = max(0, state.conv_kernel - 1)
    match state.kind:
        case RecurrentKind.MAMBA1:
            channels = _split(state.inner_channels, cards, "channels")
            return channels * taps, channels * state.state_dim
        case RecurrentKind.MAMBA2:
            # a group whose heads lie on several cards is kept by each of them
            groups = state.key_heads if state.key_heads % cards == 0 else cards
            channels = state.inner_channels + 2 * groups * state.state_dim
            heads = _split(state.heads, cards, "recurrent heads")
            return (
                _split(channels, cards, "channels") * (taps + drafts),
                heads * state.head_dim * state.state_dim,
            )
        case RecurrentKind.GATED_DELTA | RecurrentKind.KIMI_DELTA:
            channels = 2 * state.key_heads * state.state_dim + state.heads * state.head_dim
            heads = _split(state.heads, cards, "recurrent heads")
            is_square = state.kind is RecurrentKind.KIMI_DELTA
            width = state.head_dim if is_square else state.state_dim
            return (
                _split(channels, cards, "channels") * (taps + drafts),
                heads * state.head_dim * width,
            )
        case RecurrentKind.SHORT_CONVOLUTION:
            return _split(state.inner_channels, cards, "channels") * taps, 0
        case RecurrentKind.LIGHTNING:
            return 0, _split(state.heads, cards, "recurrent heads") * state.head_dim**2


def _split(width: int, cards: int, what: str) -> int:
    if width % cards:
        raise StateDoesNotDivideError(f"{width} {what} do not divide by {cards} cards")
    return width // cards


def checkpoints(
    state: RecurrentState, *, capability: tuple[int, int], model_dtype: str, release: Release
) -> Checkpoints:
    """What prefix caching adds, by the prefill kernel that the card gets."""
    since = CHECKPOINTS_SINCE.get(state.kind)
    if since is None or release.is_before(since):
        return Checkpoints()
    major = capability[0]
    match state.kind:
        case RecurrentKind.GATED_DELTA:
            # FlashInfer's: Hopper, and Blackwell with keys of 128 (CUDA 13)
            by_flashinfer = capability == (9, 0) or (major in (10, 12) and state.state_dim == 128)
            return Checkpoints(1, DELTA_CHECKPOINT_TOKENS) if by_flashinfer else Checkpoints()
        case RecurrentKind.KIMI_DELTA:
            by_flashkda = (
                major in (9, 10, 12)
                and state.head_dim == 128
                and model_dtype == "bfloat16"
                and state.bounded_gate
            )
            return Checkpoints(blocks=1 if by_flashkda else 0)
        case _:
            return Checkpoints(blocks=1)


def state_blocks(*, is_aligned: bool, drafts: int, checkpoint_blocks: int) -> int:
    """Blocks of one sequence in each group of recurrent layers.

    The running state, with prefix caching its predecessor at the last block's end and a checkpoint, and
    one for each drafted token.
    """
    return (2 + drafts + checkpoint_blocks) if is_aligned else (1 + drafts)
