"""What is a model made of, as far as memory is concerned?"""

from enum import StrEnum
from typing import NamedTuple

from plimsoll.facts.record import Record
from plimsoll.facts.source import Provenance


class KvKind(StrEnum):
    """How a layer keeps what it has seen."""

    FULL = "Full"
    """Keys and values of every token (MHA, GQA, MQA)."""
    SLIDING = "Sliding"
    """Keys and values of the last `window_tokens` tokens."""
    CHUNKED = "Chunked"
    """Keys and values inside a chunk of `window_tokens` tokens (Llama 4)."""
    MLA = "Mla"
    """One latent per token, no separate value, whole on every tensor-parallel rank (DeepSeek)."""
    INDEXER = "Indexer"
    """One key per token by which sparse attention chooses (DeepSeek-V3.2, GLM-5); beside an MLA layer."""
    COMPRESSED_MLA = "CompressedMla"
    """One latent per `compress_ratio` tokens beside a window of whole ones (DeepSeek-V4)."""
    RECURRENT = "Recurrent"
    """A state of constant size per sequence (Mamba, gated delta net, short convolution)."""
    CROSS = "Cross"
    """Keys and values of the encoder's tokens (Whisper)."""


class RecurrentKind(StrEnum):
    """Which recurrence a layer runs; its state's shape follows."""

    MAMBA1 = "Mamba1"
    MAMBA2 = "Mamba2"
    GATED_DELTA = "GatedDelta"
    """Qwen3-Next, Qwen3.5."""
    KIMI_DELTA = "KimiDelta"
    """Kimi Linear (KDA)."""
    SHORT_CONVOLUTION = "ShortConvolution"
    """LFM2."""
    LIGHTNING = "Lightning"
    """Linear attention of MiniMax-Text-01."""


class RecurrentState(Record):
    """What a recurrent layer keeps per sequence, in the whole model's numbers (before any split)."""

    kind: RecurrentKind
    """Which recurrence."""
    conv_kernel: int = 0
    """Taps of the causal convolution; it keeps one less. 0 where there is none."""
    inner_channels: int = 0
    """Channels that the convolution and the recurrence run over (Mamba's intermediate size)."""
    heads: int = 0
    """Heads of the recurrence (value heads of a delta net)."""
    head_dim: int = 0
    """Width of one of these heads."""
    key_heads: int = 0
    """Key heads of a delta net; groups of Mamba 2."""
    state_dim: int = 0
    """Mamba's state size; width of a key head of a delta net."""
    conv_dtype: str = "auto"
    """Dtype of the convolution's state; auto follows the model."""
    state_dtype: str = "auto"
    """Dtype of the recurrent state; auto follows the model."""
    bounded_gate: bool = False
    """Whether the gate of a Kimi delta net has a lower bound (Kimi-K3), by which engines choose a kernel."""


class KvGroup(Record):
    """Layers that keep KV in one layout."""

    kind: KvKind
    """How the layers keep it."""
    layers: int
    """Layers in the group."""
    kv_heads: int
    """KV heads of the whole model; 1 for MLA and its kin, 0 for recurrent layers."""
    key_dim: int
    """Width of one head's key; for MLA the latent and rotary widths together."""
    value_dim: int
    """Width of one head's value; 0 for MLA."""
    window_tokens: int | None = None
    """Window or chunk, for sliding, chunked and compressed layers."""
    compress_ratio: int | None = None
    """Tokens behind one latent, for compressed MLA; None for its layers that keep the window alone."""
    index_dim: int | None = None
    """Width of the index key that these compressed layers keep beside; None without an index."""
    state: RecurrentState | None = None
    """What recurrent layers keep."""
    at: tuple[int, ...] = ()
    """Which of the model's layers these are, from 0; empty where nobody said (all alike, or unknown)."""


class Quantization(Record):
    """How the weights are stored when not in the model's own dtype."""

    method: str
    """As the checkpoint names it: fp8, awq, gptq, mxfp4, compressed-tensors, modelopt."""
    bits: int | None = None
    """Bits of a weight where one number says it."""


class Weights(Record):
    """Bytes of the weights as stored, split by how tensor parallelism treats them."""

    total_bytes: int
    """All tensors that the engine loads."""
    replicated_bytes: int = 0
    """The part that every rank holds whole (norms, routers, MLA down-projections)."""
    largest_layer_bytes: int = 0
    """The largest block, for load peaks; 0 where nobody counted."""
    vocabulary_bytes: int = 0
    """Of the total: embedding and output projection, cut by rows; 0 where nobody counted."""
    expert_bytes: int = 0
    """Of the total: routed experts; 0 for a dense model or where nobody counted."""
    kv_projection_bytes: int = 0
    """Of the total: key and value projections, copied where ranks outnumber heads; 0 where nobody counted."""
    draft_bytes: int = 0
    """Beside the total: layers of multi-token prediction, loaded only to speculate."""


class ModelFacts(Record):
    """A model as vLLM loads it: shape, KV groups, weights."""

    id: str
    """Public identity, e.g. meta-llama/Llama-3.3-70B-Instruct, or the folder's name."""
    architecture: str
    """First of config.json's architectures."""
    layers: int
    """Hidden layers."""
    hidden_size: int
    """Width of the residual stream."""
    intermediate_size: int
    """Width of the dense feed-forward layer (or of all experts that one token uses)."""
    attention_heads: int
    """Query heads."""
    vocab_size: int
    """Tokens in the vocabulary."""
    max_position_embeddings: int
    """The longest sequence the model was made for, in tokens."""
    dtype: str = "bfloat16"
    """The model's own dtype: bfloat16, float16 or float32."""
    quantization: Quantization | None = None
    """None when the weights are in the model's own dtype."""
    kv_groups: tuple[KvGroup, ...]
    """Layers that keep KV, by layout."""
    weights: Weights
    """Bytes of the weights."""
    experts: int = 0
    """Routed experts per layer; 0 for a dense model."""
    experts_per_token: int = 0
    """Routed experts that one token uses; 0 for a dense model."""
    expert_width: int = 0
    """Width of one routed expert; 0 for a dense model."""
    tied_embeddings: bool = False
    """Whether the output projection is the embedding, stored once."""
    draft_layers: int = 0
    """Layers of multi-token prediction in the checkpoint, which engines load only to speculate."""
    kv_dtype: str = "auto"
    """What the checkpoint wants its KV cache in, where nobody asks otherwise: auto, fp8_e4m3, nvfp4, ..."""
    prefix_lm: bool = False
    """Whether image tokens see each other in both directions, which bars some attention kernels."""
    soft_capped: bool = False
    """Whether attention logits are capped (Gemma 2), which bars some attention kernels."""
    multimodal: bool = False
    """Whether an encoder of images, sound or video stands beside the language model."""
    encoder_tokens: int = 0
    """Tokens of the longest encoder input, for cross attention (Whisper: 1500)."""
    unread: tuple[str, ...] = ()
    """Fields of config.json that we neither know nor have reason to think matter to memory."""
    provenance: Provenance
    """Where these facts are from."""


class GgufTensorFacts(Record):
    """One tensor of a GGUF file."""

    name: str
    """Inside a block without the block's number: attn_q.weight; outside as in the file."""
    shape: tuple[int, ...]
    """Elements along each axis, innermost first."""
    type: str
    """ggml's name of the element type: F32, Q6_K, MXFP4."""
    bytes: int
    """Bytes of its data."""


class GgufBlocks(Record):
    """Blocks of a GGUF file that are made of the same tensors."""

    at: tuple[int, ...]
    """Which of the model's blocks these are, from 0."""
    tensors: tuple[GgufTensorFacts, ...]
    """What each of them is made of."""


class GgufFacts(Record):
    """A GGUF file as llama.cpp loads it: bytes per block, shape, KV layout."""

    id: str
    """The file's name or the public identity."""
    architecture: str
    """general.architecture: llama, gemma3, deepseek2, ..."""
    quantization: str
    """The file's type: Q4_K_M, Q6_K, F16, ..."""
    block_bytes: tuple[int, ...]
    """Bytes of the tensors of each block, first block first."""
    output_bytes: int
    """Output norm and projection; with tied embeddings the embedding stands in for the latter."""
    embedding_bytes: int
    """Token embedding (and other tensors outside blocks that stay in host memory)."""
    tied_output: bool = False
    """Whether the output projection is the embedding (stored twice once a layer is on the card)."""
    largest_ffn_tensor_bytes: int = 0
    """Largest feed-forward tensor of a block, for partial offload's copies."""
    largest_attention_tensor_bytes: int = 0
    """Largest attention tensor of a block."""
    embedding_length: int
    """Width of the residual stream."""
    feed_forward_length: int
    """Width of the dense feed-forward layer."""
    head_count: int
    """Query heads."""
    vocab_size: int
    """Tokens in the vocabulary."""
    context_length: int
    """The longest sequence the model was made for, in tokens."""
    expert_count: int = 0
    """Experts per layer; 0 for a dense model."""
    expert_used_count: int = 0
    """Experts that one token uses."""
    expert_feed_forward_length: int = 0
    """Width of one expert."""
    kv_groups: tuple[KvGroup, ...]
    """Layers that keep KV, by layout; the sum of their layers may be below the number of blocks."""
    sliding_blocks: tuple[int, ...] = ()
    """Indices of the blocks with a sliding window."""
    draft_blocks: int = 0
    """Blocks at the end that only multi-token prediction runs: loaded, but without a cache."""
    blocks: tuple[GgufBlocks, ...] = ()
    """Tensors of the blocks; empty where nobody listed them, and then derived from the shape."""
    outside: tuple[GgufTensorFacts, ...] = ()
    """Tensors outside blocks; empty where nobody listed them."""
    provenance: Provenance
    """Where these facts are from."""


class UnknownLayout(NamedTuple):
    """A model whose KV layout we do not understand: refused by name, never guessed."""

    architecture: str
    """As the config names it."""
    message: str
    """What was seen and what can be done."""
