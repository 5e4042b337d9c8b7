"""What is vLLM asked, as far as its KV pool goes?"""

from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.facts.model import KvGroup

NEWEST: Final = Release.of("0.33.0")
"""The release that the layout was read from; older ones differ where a constant says so."""
IN_FLIGHT_BY_STEPS: Final = "0.26"
"""First release whose windows hold every step in flight, not one (notes of the release, source read)."""

HYBRID_PREFIX_CACHING: Final = "0.26"
"""First release that caches prefixes of models with recurrent layers unasked."""


class KvAsk(NamedTuple):
    """Flags, card and release; the defaults are the engine's own on one H100."""

    max_model_len: int
    """The longest sequence, in tokens."""
    max_num_batched_tokens: int = 8192
    """Tokens of one step."""
    release: Release = NEWEST
    """The engine's release."""
    capability: tuple[int, int] = (9, 0)
    """The card's compute capability."""
    tp: int = 1
    """Tensor parallelism."""
    pp: int = 1
    """Pipeline stages."""
    pp_rank: int | None = None
    """One stage planned alone, by its own layers; None for all of them together, as the engine plans."""
    dcp: int = 1
    """Decode context parallelism: ranks that share a sequence's tokens."""
    kv_dtype: str = "auto"
    """--kv-cache-dtype."""
    block_tokens: int | None = None
    """--block-size, where given."""
    has_async_scheduling: bool = True
    """One more step is in flight while a step runs (on since 0.14)."""
    has_prefix_caching: bool | None = None
    """None for the release's default."""
    has_hybrid_manager: bool = True
    """Whether windows are kept as windows; --disable-hybrid-kv-cache-manager says no."""
    skip_layers: tuple[str, ...] = ()
    """--kv-cache-dtype-skip-layers: layer indices or sliding_window."""
    drafts: int = 0
    """num_speculative_tokens."""
    draft_groups: tuple[KvGroup, ...] = ()
    """KV of the draft model's layers, which stand behind the model's own."""
    retained_tokens: int = 0
    """Tokens kept behind a window for several draft modules (num_prefill_lookahead_tokens - 1)."""
    has_flashinfer: bool = False
    """Whether the image has FlashInfer."""
    is_text_only: bool = False
    """--language-model-only: images are not taken, so their tokens need no kernel of their own."""

    @property
    def is_caching_states(self) -> bool:
        """Whether recurrent states are kept at the ends of blocks, for the prefix cache (align mode)."""
        if self.has_prefix_caching is not None:
            return self.has_prefix_caching
        return not self.release.is_before(HYBRID_PREFIX_CACHING)

    @property
    def steps_in_flight(self) -> int:
        """Steps whose tokens windows hold at once: one a stage, one more with async scheduling."""
        if self.release.is_before(IN_FLIGHT_BY_STEPS):
            return 1
        return self.pp + 1 if self.has_async_scheduling else self.pp

    @property
    def in_flight_tokens(self) -> int:
        """Tokens of those steps."""
        return self.steps_in_flight * self.max_num_batched_tokens
