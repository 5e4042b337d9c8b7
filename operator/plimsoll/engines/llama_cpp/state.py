"""How large is the recurrent state that llama.cpp keeps for one slot?

llama_hparams::n_embd_r and n_embd_s, b11434: always 32-bit numbers, whatever the model's dtype.
"""

from plimsoll.engines.llama_cpp.tensors import F32_BYTES
from plimsoll.facts.model import RecurrentState


def conv_values(state: RecurrentState) -> int:
    """Values of the convolution's last taps: its channels are the inner ones and both kinds of keys."""
    channels = state.inner_channels + 2 * state.key_heads * state.state_dim
    return max(state.conv_kernel - 1, 0) * channels


def state_values(state: RecurrentState) -> int:
    """Values of the recurrence itself."""
    return state.state_dim * state.inner_channels


def state_bytes(state: RecurrentState) -> int:
    """Bytes of one layer's state for one slot."""
    return F32_BYTES * (conv_values(state) + state_values(state))
