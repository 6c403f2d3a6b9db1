"""The arithmetic of a narrowed model: parameters, targets, what each layer may become. No tensor is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prune.arithmetic import parse_count
from prune.errors import UsageError
from prune.parts import Room

from .layout import Site
from .model import LazyModel


@dataclass(frozen=True)
class Budget:
    """Parameters of a source by where they are: P(widths) = other + Σ widths · per_neuron.

    A site of width 0 is an expert that leaves, its row of the router with it.
    """

    full: tuple[int, ...]  #: F of every site
    per_neuron: tuple[int, ...]  #: parameters that leave with one neuron of a site
    other: int  #: everything else
    row: int = 0  #: parameters of a router's row

    @property
    def neurons(self) -> int:
        return sum(self.full)

    def parameters(self, widths: Sequence[int]) -> int:
        """Parameters at these widths."""
        kept = sum(w * p for w, p in zip(widths, self.per_neuron, strict=True))
        return self.other + kept - self.row * list(widths).count(0)


def budget_of(model: LazyModel) -> Budget:
    """Count a source. A shared head counts once; tensors that the causal model does not use are left out."""
    total = sum(p.numel() for p in _parameters(model))
    full = tuple(s.width for s in model.sites)
    per_neuron = tuple(_per_neuron(model, s) for s in model.sites)
    other = total - sum(f * p for f, p in zip(full, per_neuron, strict=True))
    return Budget(full, per_neuron, other, model.sites[0].hidden)


def kept_neurons(budget: Budget, ffn: float | None, size: str | None, ratio: float | None) -> int:
    """How many FFN neurons a target leaves, over all layers.

    :raises UsageError: for a target that is no number, or above the source.
    """
    if ffn is not None:
        kept = round(ffn * budget.neurons) if ffn <= 1 else round(ffn * len(budget.full))
        if kept > budget.neurons:
            widest = budget.neurons / len(budget.full)
            raise UsageError(
                f"ffn={ffn:g}: the source has {widest:.0f} neurons a layer; give at most that, or ≤ 1"
            )
        return kept
    source = budget.parameters(budget.full)
    wanted = parse_count(size) if size is not None else round(float(ratio or 1) * source)
    asked = f"size={size}" if size is not None else f"ratio={ratio}"
    if wanted > source:
        raise UsageError(f"{asked}: {wanted:,} parameters, but the source has {source:,}")
    mean = sum(f * p for f, p in zip(budget.full, budget.per_neuron, strict=True)) / budget.neurons
    if wanted <= budget.other:
        raise UsageError(
            f"{asked}: {wanted:,} parameters, but {budget.other:,} of the source lie outside the FFN"
        )
    return int((wanted - budget.other) / mean)


def rooms_of(
    budget: Budget, options: Mapping[str, Any], step: int, layers: Sequence[int] | None = None
) -> list[Room]:
    """What each site may become under ``plan.protect_*`` and ``plan.min_width``.

    :param layers: of the sites; None: one site a layer.
    """
    layers = layers or range(len(budget.full))
    first, last = options["protect_first"], layers[-1] + 1 - options["protect_last"]
    return [
        Room(full, min(full, _floor(options["min_width"] * full, step)), not first <= i < last)
        for i, full in zip(layers, budget.full, strict=True)
    ]


def _floor(least: float, step: int) -> int:
    """The next multiple of the step; a layer never loses its last one."""
    return max(1, math.ceil(least / step)) * step


def least_of(rooms: Iterable[Room]) -> int:
    """Neurons that the floors keep."""
    return sum(r.full if r.protected else r.floor for r in rooms)


def check_reach(rooms: Sequence[Room], total: int, step: int) -> None:
    """Refuse a target below what the floors allow.

    :raises UsageError: with both numbers.
    """
    if total < (least := least_of(rooms)):
        raise UsageError(
            f"the target keeps {total:,} FFN neurons, but the floors keep {least:,} "
            f"(plan.min_width, plan.align: widths are multiples of {step}); ask for more or lower them"
        )


def _parameters(model: LazyModel) -> list[Any]:
    return [model.model.get_parameter(n) for n in model.names]


def _per_neuron(model: LazyModel, site: Site) -> int:
    biases = sum(r.blocks for r in site.read_ins if model.model.get_submodule(r.module).bias is not None)
    return site.neuron_parameters + biases
