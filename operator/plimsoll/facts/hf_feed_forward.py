"""How many bytes does the feed-forward part of one layer take, dense or experts?"""

from __future__ import annotations

from plimsoll.facts.hf_parts import At, Role, Shape, Tally


def _gated(
    tally: Tally, role: Role, inner: int, width: int, module: str, *, times: int = 1
) -> None:
    tally.matrix(role, inner, width, f"{module}.gate_proj", times=times)
    tally.matrix(role, inner, width, f"{module}.up_proj", times=times)
    tally.matrix(role, width, inner, f"{module}.down_proj", times=times)


def dense(at: At) -> None:
    """Gate, up and down."""
    inner = at.shape.whole("intermediate_size_mlp", "intermediate_size")
    _gated(at.tally, Role.SHARDED, inner, at.shape.whole("hidden_size"), f"layers.{at.layer}.mlp")


def ungated(at: At) -> None:
    """Up and down alone."""
    inner, width = at.shape.whole("intermediate_size"), at.shape.whole("hidden_size")
    at.tally.matrix(Role.SHARDED, inner, width, f"layers.{at.layer}.mlp.up_proj")
    at.tally.matrix(Role.SHARDED, width, inner, f"layers.{at.layer}.mlp.down_proj")


def experts(at: At) -> None:
    """Routed experts with their router and what is shared by all tokens; dense where the config says so."""
    count = at.shape.number("num_local_experts", "num_experts", "n_routed_experts")
    if not count or not at.family.is_sparse(at.shape, at.layer):
        dense(at)
        return
    width, module = at.shape.whole("hidden_size"), f"layers.{at.layer}.mlp"
    inner = at.shape.whole("moe_intermediate_size", "intermediate_size")
    at.tally.values(Role.REPLICATED, count * width, each=at.family.router_bytes)
    if at.family.corrected:
        at.tally.values(Role.REPLICATED, count, each=4)
    _gated(at.tally, Role.EXPERTS, inner, width, f"{module}.experts.0", times=count)
    if at.family.expert_biased:
        at.tally.values(Role.REPLICATED, count)
        at.tally.values(Role.EXPERTS, count * (2 * inner + width))
    shared = at.shape.number("shared_expert_intermediate_size", "shared_intermediate_size")
    shared = shared or inner * (at.shape.number("n_shared_experts") or at.family.shared)
    if shared:
        _gated(at.tally, Role.SHARDED, shared, width, f"{module}.shared_experts")
    if at.family.shared_gate:
        at.tally.values(Role.REPLICATED, width)


def gemma4_feed_forward(at: At) -> None:
    """A dense layer, and experts beside it where the block is on, with their own norms and scales."""
    dense(at)
    count = at.shape.number("num_experts") if at.shape.flag("enable_moe_block") else 0
    if count:
        width, inner = at.shape.whole("hidden_size"), at.shape.whole("moe_intermediate_size")
        at.tally.values(Role.REPLICATED, count * width + width + count + 3 * width)
        _gated(at.tally, Role.EXPERTS, inner, width, f"layers.{at.layer}.experts.0", times=count)


def nothing(at: At) -> None:
    """The mixer is the whole layer (Nemotron-H)."""


def stepped(shape: Shape, layer: int) -> bool:
    """Every nth layer has experts, but for those that are named dense."""
    step = shape.number("decoder_sparse_step", "interleave_moe_layer_step") or 1
    return layer not in (shape.value("mlp_only_layers") or ()) and (layer + 1) % step == 0


def offset(shape: Shape, layer: int) -> bool:
    """Every nth layer from a first one has experts (Jamba)."""
    period, start = shape.number("expert_layer_period") or 1, shape.number("expert_layer_offset")
    return (layer - start) % period == 0
