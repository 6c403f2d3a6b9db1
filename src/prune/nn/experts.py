"""Experts as modules of their own, in place of transformers' fused three-dimensional parameters.

Every expert is three Linear matrices named as in the family's files, so that loading by name, codecs, Grams
and narrowing treat an expert as they treat any feed-forward block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .layout import Layout


class Expert(nn.Module):
    """p · W (act(gate x) ⊙ (up x)) with the routing weight p applied before the read-out W.

    Without a bias p·(W a) = W (p·a), and what a hook on the read-out sees is then the input whose Gram weighs
    each token as the layer's output does.

    :param gate_up: [2F, D], gate over up.
    :param down: W, [D, F].
    """

    tokens: Tensor  #: rows of the layer's flattened input that the last call was routed, int64 [n]

    def __init__(
        self, names: Sequence[str], gate_up: Tensor, down: Tensor, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.names, self.act = tuple(names), act
        for name, weight in zip(names, (*gate_up.chunk(2), down), strict=True):
            self.add_module(name, _linear(weight))

    def forward(self, hidden: Tensor, weights: Tensor) -> Tensor:
        """[n, D] from [n, D] and routing weights [n, 1]."""
        gate, up, down = (self.get_submodule(name) for name in self.names)
        a = self.act(gate(hidden)) * up(hidden)
        out: Tensor = down((weights * a).to(hidden.dtype))
        return out


class Experts(nn.ModuleList):
    """All experts of a layer, called as transformers calls the fused ones."""

    @classmethod
    def of(cls, fused: Any, names: Sequence[str]) -> Experts:
        """The same experts, their weights views of the fused parameters."""
        pairs = zip(fused.gate_up_proj, fused.down_proj, strict=True)
        return cls(Expert(names, gate_up, down, fused.act_fn) for gate_up, down in pairs)

    def forward(self, hidden: Tensor, picks: Tensor, weights: Tensor) -> Tensor:
        """[n, D] from [n, D], picked experts int64 [n, k] and their routing weights [n, k]."""
        out = torch.zeros_like(hidden)
        for i in sorted(set(picks.flatten().tolist())):
            expert = self[i]
            tokens, nth = torch.where(picks == i)
            expert.tokens = tokens
            out = out.index_add(0, tokens, expert(hidden[tokens], weights[tokens, nth, None]))
        return out


def separate(model: Any, layout: Layout) -> dict[str, nn.Module]:
    """Put our experts in the place of every fused module; returns those by name."""
    fused: dict[str, nn.Module] = {}
    if layout.mixture:
        for name, module in list(model.named_modules()):
            if name.startswith(layout.layers) and name.endswith("." + layout.mixture.experts):
                fused[name] = module
                model.set_submodule(name, Experts.of(module, layout.mixture.matrices))
    return fused


def _linear(weight: Tensor) -> nn.Linear:
    matrix = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    matrix.weight = nn.Parameter(weight, requires_grad=False)
    return matrix
