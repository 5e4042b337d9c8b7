"""Which operations does the feed-forward part of one block add to the graph?

build_ffn and build_moe_ffn of src/llama-graph.cpp, b11434. With a gate the two products are joined by
one operation; without one the activation overwrites the product.
"""

from __future__ import annotations

from typing import Final

from plimsoll.engines.llama_cpp.layer import Block, projected
from plimsoll.engines.llama_cpp.tensors import (
    Graph,
    Tensor,
    multiplied,
    routed,
    rows,
    same,
    view,
)
from plimsoll.engines.llama_cpp.traits import Router, Traits

_SHARED: Final = "_shexp"


class FeedForward:
    """Adds the feed-forward parts of blocks to one graph."""

    def __init__(self, graph: Graph, traits: Traits, *, experts_used: int) -> None:
        self.graph = graph
        self.traits = traits
        self.experts_used = experts_used

    def add(self, layer: Block, values: Tensor) -> Tensor:
        """The feed-forward part of one block; the normed residual stream goes in."""
        if layer.shape("ffn_gate_inp.weight") is None:
            return self.dense(layer, values)
        out = self.experts(layer, values, values)
        if layer.shape(f"ffn_up{_SHARED}.weight") is None:
            return out
        return same("add", out, self._shared(layer, values))

    def dense(self, layer: Block, values: Tensor, suffix: str = "") -> Tensor:
        """A feed-forward part without experts."""
        up = projected(layer, f"ffn_up{suffix}", values)
        down = layer.shape(f"ffn_down{suffix}.weight")
        if layer.shape(f"ffn_gate{suffix}.weight") is not None:
            hidden = same("glu", projected(layer, f"ffn_gate{suffix}", values), up)
        elif (
            down is not None and up.ne[0] == 2 * down[0]
        ):  # one product for both halves (Phi-3, GLM-4)
            hidden = Tensor("glu", (down[0], *up.ne[1:]), up)
        else:
            hidden = same("unary", up)
        return projected(layer, f"ffn_down{suffix}", hidden)

    def _shared(self, layer: Block, values: Tensor) -> Tensor:
        out = self.dense(layer, values, _SHARED)
        gate = layer.weight(f"ffn_gate_inp{_SHARED}.weight")
        if gate is None:
            return out
        return same("mul", out, same("unary", multiplied(gate, values)))

    def experts(self, layer: Block, values: Tensor, asked: Tensor) -> Tensor:
        """The experts' results, summed; `asked` is what the router reads."""
        weights, chosen = self._routes(layer, asked)
        self.graph.expand(weights)
        width, tokens = values.ne[0], values.ne[1]
        each = view(values, (width, 1, tokens))
        if self.traits.weighed_first:
            many = Tensor("repeat", (width, self.experts_used, tokens), each)
            each = same("mul", many, weights)
        out = self._expert_product(layer, "down", self._hidden(layer, each, chosen), chosen)
        if not self.traits.weighed_first:
            out = same("mul", out, weights)
        self.graph.expand(out)
        return self._summed(out, tokens)

    def _routes(self, layer: Block, values: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the chosen experts, and which they are."""
        traits, used = self.traits, self.experts_used
        scores = projected(layer, "ffn_gate_inp", values)
        experts, tokens = scores.ne[0], scores.ne[1]
        chances = scores
        if traits.router is not Router.CHOSEN:
            chances = same("soft_max" if traits.router is Router.SOFTMAX else "unary", scores)
        bias = layer.weight("exp_probs_b.bias")
        ranked = chances if bias is None else same("add", chances, bias)
        order = same("argsort", scores if traits.weighed_first else ranked)
        chosen = view(order, (used, tokens), order.strides)
        weights = rows(view(chances, (1, experts, tokens)), chosen)
        if traits.router is Router.CHOSEN:
            weights = same("soft_max", view(weights, (used, tokens)))
            weights = view(weights, (1, used, tokens))
        if traits.normed_experts:
            flat = view(weights, (used, tokens))
            total = same("clamp", Tensor("sum_rows", (1, tokens), flat))
            weights = view(same("div", flat, total), (1, used, tokens))
        return weights, chosen

    def _hidden(self, layer: Block, values: Tensor, chosen: Tensor) -> Tensor:
        fused = layer.shape("ffn_gate_up_exps.weight")
        if fused is not None:
            both = self._expert_product(layer, "gate_up", values, chosen)
            half = (fused[1] // 2, *both.ne[1:])
            return Tensor(
                "glu", half, view(both, half, both.strides), view(both, half, both.strides)
            )
        up = self._expert_product(layer, "up", values, chosen)
        if layer.shape("ffn_gate_exps.weight") is None:
            return same("unary", up)
        return same("glu", self._expert_product(layer, "gate", values, chosen), up)

    def _expert_product(self, layer: Block, name: str, values: Tensor, chosen: Tensor) -> Tensor:
        out = routed(layer.need(f"ffn_{name}_exps.weight"), values, chosen)
        bias = layer.weight(f"ffn_{name}_exps.bias")
        return out if bias is None else same("add_id", out, bias, chosen)

    def _summed(self, experts: Tensor, tokens: int) -> Tensor:
        width = experts.ne[0]
        step = experts.strides[2]
        parts = [
            self.graph.expand(
                view(experts, (width, tokens), (experts.unit, step, step * tokens, step * tokens))
            )
            for _ in range(self.experts_used)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = self.graph.expand(Tensor("add", (width, tokens), total, part))
        if len(parts) == 1:
            return Tensor("cont", (width, tokens), total)
        return total
