"""How many bytes do attention and recurrence of one layer take?

Tensor by tensor as vLLM 0.33.0 model_executor/models has them, with their names in a checkpoint where these
say what is quantised.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.hf_parts import At, Role


def attention(at: At) -> None:
    """Plain heads, with whatever norms, biases, gates and sinks the family has."""
    heads, kv, head = _heads(at)
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.self_attn"
    gate = 2 if at.shape.flag("attn_output_gate", default=at.family.gated) else 1
    biased = at.shape.flag("attention_bias", "qkv_bias", default=at.family.biased)
    bias = Role.SHARDED if biased else None
    at.tally.matrix(Role.SHARDED, gate * heads * head, width, f"{module}.q_proj", bias=bias)
    keys = Role.KEYS if biased else None
    at.tally.matrix(Role.KEYS, kv * head, width, f"{module}.k_proj", bias=keys)
    at.tally.matrix(Role.KEYS, kv * head, width, f"{module}.v_proj", bias=keys)
    whole = Role.REPLICATED if biased and at.family.output_biased else None
    at.tally.matrix(Role.SHARDED, width, heads * head, f"{module}.o_proj", bias=whole)
    if at.family.head_norms and at.shape.flag("use_qk_norm", default=True):
        per_head = at.family.head_norms == "head"
        at.tally.values(
            Role.REPLICATED if per_head else Role.SHARDED, head * (1 if per_head else heads)
        )
        at.tally.values(Role.REPLICATED if per_head else Role.KEYS, head * (1 if per_head else kv))
    if at.family.sinks:
        at.tally.values(Role.SHARDED, heads)


def latent(at: At) -> None:
    """MLA; with index_topk an indexer beside it (DeepSeek-V3.2, GLM-5)."""
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.self_attn"
    heads, latent = at.shape.whole("num_attention_heads"), at.shape.whole("kv_lora_rank")
    rope, nope = at.shape.whole("qk_rope_head_dim"), at.shape.whole("qk_nope_head_dim")
    value, query = at.shape.whole("v_head_dim"), at.shape.number("q_lora_rank")
    if query:
        at.tally.matrix(Role.REPLICATED, query, width, f"{module}.q_a_proj")
        at.tally.values(Role.REPLICATED, query)
        at.tally.matrix(Role.SHARDED, heads * (nope + rope), query, f"{module}.q_b_proj")
    else:
        at.tally.matrix(Role.SHARDED, heads * (nope + rope), width, f"{module}.q_proj")
    at.tally.matrix(Role.REPLICATED, latent + rope, width, f"{module}.kv_a_proj_with_mqa")
    at.tally.values(Role.REPLICATED, latent)
    at.tally.matrix(Role.SHARDED, heads * (nope + value), latent, f"{module}.kv_b_proj")
    at.tally.matrix(Role.SHARDED, width, heads * value, f"{module}.o_proj")
    if at.shape.number("index_topk") and _has_index(at):
        index, index_heads = at.shape.whole("index_head_dim"), at.shape.whole("index_n_heads")
        module = f"{module}.indexer"
        at.tally.matrix(Role.REPLICATED, index_heads * index, query, f"{module}.wq_b")
        # two small projections of one matrix that stays as it was
        at.tally.values(Role.REPLICATED, (index + index_heads) * width)
        at.tally.values(Role.REPLICATED, 2 * index, each=4)


def _heads(at: At) -> tuple[int, int, int]:
    """Query heads, KV heads, width of one."""
    shape = at.shape
    heads = shape.whole("num_attention_heads")
    kv = shape.number("num_key_value_heads") or heads
    if at.family.wide_full and shape.kind(at.layer) == "full_attention":
        kv = shape.number("num_global_key_value_heads") or kv
        return heads, kv, shape.whole("global_head_dim")
    given = shape.number("head_dim", "attention_head_dim")
    return heads, kv, given or shape.whole("hidden_size") // heads


def _has_index(at: At) -> bool:
    """Layers may share the index of one before them (indexer_types of GLM-5.2)."""
    types = at.shape.value("indexer_types")
    return not types or types[at.layer] != "shared"


def delta(at: At) -> None:
    """Gated delta net of Qwen3-Next and Qwen3.5."""
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.linear_attn"
    heads, value = at.shape.whole("linear_num_value_heads"), at.shape.whole("linear_value_head_dim")
    keys = at.shape.whole("linear_num_key_heads") * at.shape.whole("linear_key_head_dim")
    inner = heads * value
    at.tally.matrix(Role.SHARDED, 2 * keys + 2 * inner, width, f"{module}.in_proj_qkvz")
    at.tally.matrix(Role.SHARDED, 2 * heads, width, f"{module}.in_proj_ba")
    at.tally.values(Role.SHARDED, (2 * keys + inner) * at.shape.whole("linear_conv_kernel_dim"))
    at.tally.values(Role.SHARDED, heads)
    at.tally.values(Role.SHARDED, heads, each=4)
    at.tally.values(Role.REPLICATED, value)
    at.tally.matrix(Role.SHARDED, width, inner, f"{module}.out_proj")


def mamba2(at: At) -> None:
    """Mamba 2; its groups are copied on every rank where there is only one."""
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.mamba"
    heads = at.shape.whole("mamba_n_heads", "mamba_num_heads")
    inner = heads * at.shape.whole("mamba_d_head", "mamba_head_dim")
    groups = at.shape.whole("mamba_n_groups", "n_groups")
    states = 2 * groups * at.shape.whole("mamba_d_state", "ssm_state_size")
    taps = at.shape.whole("mamba_d_conv", "conv_kernel")
    copied = Role.REPLICATED if groups == 1 else Role.SHARDED
    at.tally.matrix(Role.SHARDED, 2 * inner + heads, width, f"{module}.in_proj")
    at.tally.matrix(copied, states, width, f"{module}.in_proj")
    at.tally.values(Role.SHARDED, inner * (taps + 1))
    at.tally.values(copied, states * (taps + 1))
    at.tally.values(Role.SHARDED, 2 * heads)
    at.tally.values(Role.SHARDED, heads, each=4)
    at.tally.values(Role.SHARDED, inner)
    at.tally.matrix(Role.SHARDED, width, inner, f"{module}.out_proj")


def mamba1(at: At) -> None:
    """Mamba 1 as Jamba has it, with norms of step, input and output."""
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.mamba"
    inner, state = at.shape.whole("mamba_expand") * width, at.shape.whole("mamba_d_state")
    rank = at.shape.whole("mamba_dt_rank")
    at.tally.matrix(Role.SHARDED, 2 * inner, width, f"{module}.in_proj")
    at.tally.values(Role.SHARDED, inner * (at.shape.whole("mamba_d_conv") + 1))
    at.tally.matrix(Role.SHARDED, rank + 2 * state, inner, f"{module}.x_proj")
    at.tally.matrix(Role.SHARDED, inner, rank, f"{module}.dt_proj", bias=Role.SHARDED)
    at.tally.values(Role.SHARDED, inner)
    at.tally.values(Role.SHARDED, inner * state, each=4)
    at.tally.matrix(Role.SHARDED, width, inner, f"{module}.out_proj")
    at.tally.values(Role.REPLICATED, rank + 2 * state)


def mixed(recurrence: Callable[[At], None]) -> Callable[[At], None]:
    """Attention on layers that the config names so, the recurrence on the others."""

    def mixer(at: At) -> None:
        chosen = attention if at.shape.kind(at.layer) == "full_attention" else recurrence
        chosen(at)

    return mixer


def nemotron(at: At) -> None:
    """Nemotron-H: each layer is a recurrence, attention, a dense part or experts, by its pattern."""
    pattern = at.shape.text.text("hybrid_override_pattern")
    if len(pattern) != at.shape.layers:
        raise NotUnderstoodError(
            f"hybrid_override_pattern names {len(pattern)} layers of {at.shape.layers}."
        )
    match pattern[at.layer]:
        case "M":
            mamba2(at)
        case "*":
            attention(at)
        case "-":
            inner, width = at.shape.whole("intermediate_size"), at.shape.whole("hidden_size")
            at.tally.matrix(Role.SHARDED, inner, width, f"layers.{at.layer}.mixer.up_proj")
            at.tally.matrix(Role.SHARDED, width, inner, f"layers.{at.layer}.mixer.down_proj")
        case _:
            _nemotron_experts(at)


def _nemotron_experts(at: At) -> None:
    """Experts without a gate; with a latent they work at its width."""
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.mixer"
    count, inner = at.shape.whole("n_routed_experts"), at.shape.whole("moe_intermediate_size")
    latent = at.shape.number("moe_latent_size") or width
    at.tally.values(Role.REPLICATED, count * width)
    at.tally.values(Role.REPLICATED, count, each=4)
    at.tally.matrix(Role.EXPERTS, inner, latent, f"{module}.experts.0.up_proj", times=count)
    at.tally.matrix(Role.EXPERTS, latent, inner, f"{module}.experts.0.down_proj", times=count)
    shared = at.shape.number("moe_shared_expert_intermediate_size")
    at.tally.matrix(Role.SHARDED, shared, width, f"{module}.shared_experts.up_proj")
    at.tally.matrix(Role.SHARDED, width, shared, f"{module}.shared_experts.down_proj")
    if latent != width:
        at.tally.matrix(Role.REPLICATED, latent, width, f"{module}.fc1_latent_proj")
        at.tally.matrix(Role.REPLICATED, width, latent, f"{module}.fc2_latent_proj")
