"""From a target to widths, and the table that tells what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from prune.allocation import ladder, stops
from prune.arithmetic import width_step
from prune.errors import UsageError
from prune.parts import Learns, Prices, Shares, build
from prune.plugins import choice

from .budget import budget_of, check_reach, kept_neurons, rooms_of
from .cover import Cover, cover_of, experts_left
from .model import LazyModel
from .oneshot import STARVED, starved
from .widths import even, saved


class Planner:
    """The widths of one source under one target.

    :param options: ``ffn``, ``size``, ``ratio``, ``target``, ``selector``, ``allocator``, ``plan``, ``save``,
        ``codec.group``.
    """

    def __init__(self, model: LazyModel, options: Mapping[str, Any]) -> None:
        self.options = options
        self.sites = model.sites
        self.budget = budget_of(model)
        self.step = width_step(options["plan"]["align"], options["codec.group"])
        sizes = {k: options[k] for k in ("ffn", "size", "ratio")}
        searched = options["target"]["max_nll_rise"] is not None
        self.total = None if searched else kept_neurons(self.budget, **sizes)  #: None: a search finds it
        self.rooms = rooms_of(self.budget, options["plan"], self.step, [s.layer for s in self.sites])
        self.selector, self.allocator = build(options["selector"]), build(options["allocator"])
        self.top_k = model.config.num_experts_per_tok if model.layout.mixture else 0
        self._refuse_running()
        self.rank([1] * len(self.sites))

    def check(self) -> None:
        """:raises UsageError: where the floors already keep more than the target."""
        if self.total is not None:
            check_reach(list(self.cover.left(self.rooms).values()), self.total, self.step)

    def rank(self, seen: Sequence[int]) -> None:
        """Tell how many calibration tokens each site saw; a forecast before takes all experts to be alike."""
        self.seen = seen
        drops = self.top_k and self.options["plan"]["experts"] == "auto"
        alike = self.options["save"]["widths"] != "exact"
        self.cover = cover_of(self.sites, seen, self.top_k, alike) if drops else Cover(self.sites, [])

    @property
    def stops(self) -> list[list[int]]:
        """The widths that each layer may have, ascending."""
        return [stops(r, self.step) for r in self.rooms]

    @property
    def totals_in_reach(self) -> list[int]:
        """Neurons in all as experts leave, then at each fraction of the rest: what a search looks through."""
        narrower = ladder(list(self.cover.left(self.rooms).values()), self.step)
        return sorted({*self.cover.sizes, *map(sum, narrower)})

    def know(
        self,
        curves: Sequence[Tensor],
        energies: Sequence[float],
        costs: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Tell the allocator of every layer's errors and costs.

        :param curves: relative refit error at every width, [F + 1] a layer.
        :param energies: the layers' output energies.
        :param costs: of each stop, where the allocator measures any.
        """
        rooms = zip(self.rooms, self.stops, curves, energies, strict=True)
        self.rooms = [replace(r, rel=[(k, float(c[k])) for k in ks], energy=e) for r, ks, c, e in rooms]
        if costs is not None:
            priced = zip(self.rooms, self.stops, costs, strict=True)
            self.rooms = [replace(r, cost=list(zip(ks, c, strict=True))) for r, ks, c in priced]

    def widths(self, total: int | None = None) -> list[int]:
        """One width a layer; a forecast before :meth:`know`.

        :param total: neurons in all; None: the target's.
        :raises UsageError: where the widths that come out do not suit ``save.widths``.
        """
        total = self.total if total is None else total
        assert total is not None
        try:
            sharer = self.selector if isinstance(self.selector, Shares) else self.allocator
            widths = self.cover.widths(self.rooms, total, lambda r: sharer.widths(r, total, self.step))
        except ValueError as e:
            raise UsageError(f"allocator: {e}") from None
        if self.options["save"]["widths"] == "uniform" and not even(self.sites, widths):
            kept = [w for w in widths if w]
            raise UsageError(
                f"the plan has widths from {min(kept)} to {max(kept)}, save.widths=uniform wants one; "
                "give save.widths=padded (loads everywhere, zeros in the file) or exact (loads with prune)"
            )
        return widths

    def saved(self, widths: Sequence[int]) -> list[int]:
        """The widths in the file: padded ones are as wide as the widest of their kind."""
        return saved(self.sites, widths, self.options["save"]["widths"])

    def table(self, widths: Sequence[int], curves: Sequence[Tensor], tokens: int) -> dict[str, Any]:
        """The plan record: a row a site, totals, the curves at a few widths, warnings."""
        layers = [
            {
                **site.label,
                "full": room.full,
                "kept": width,
                "protected": room.protected,
                "rel_train": float(curve[width]),
                "tokens_per_neuron": round(
                    (tokens if site.expert is None else seen) / (width or room.full), 1
                ),
            }
            for site, room, width, curve, seen in zip(
                self.sites, self.rooms, widths, curves, self.seen, strict=True
            )
        ]
        stops = sorted({round(self.rooms[0].full * k / 16) for k in range(1, 17)})
        return {
            "layers": layers,
            "totals": self.totals(widths),
            "curves": {"widths": stops, "rel": _sampled(curves, stops)},
            "warnings": self._warnings(widths, tokens),
        }

    def totals(self, widths: Sequence[int]) -> dict[str, Any]:
        """Neurons and parameters before and after."""
        return {
            "asked": asked(self.options),
            "shared_by": self._name_of_sharer(),
            "loader": "transformers" if even(self.sites, self.saved(widths)) else "prune",
            "step": self.step,
            "neurons_before": self.budget.neurons,
            "neurons_after": sum(widths),
            "params_before": self.budget.parameters(self.budget.full),
            "params_after": self.budget.parameters(widths),
            "params_saved": self.budget.parameters(self.saved(widths)),
            **(experts_left(self.sites, widths, self.seen) if self.top_k else {}),
        }

    def _refuse_running(self) -> None:
        parts = {"selector": (self.selector, Learns), "allocator": (self.allocator, Prices)}
        for group, (part, runs) in parts.items():
            if self.top_k and isinstance(part, runs):
                name = choice(group, self.options[group]["_target_"])["name"]
                raise UsageError(
                    f"{group}={name} measures one FFN a layer, and this is a mixture of experts; "
                    "give selector=greedy allocator=uniform"
                )

    def _name_of_sharer(self) -> str:
        group = "selector" if isinstance(self.selector, Shares) else "allocator"
        return f"{group} {choice(group, self.options[group]['_target_'])['name']}"

    def _warnings(self, widths: Sequence[int], tokens: int) -> list[str]:
        found = []
        sites = list(zip(self.sites, self.rooms, widths, self.seen, strict=True))
        thin = [s for s, _, w, _ in sites if s.expert is None and tokens / w < 10]
        if thin:
            found.append(
                f"{len(thin)} layers have under 10 calibration tokens a kept neuron ({tokens:,} in all): "
                "the refit may overfit; give more prompts"
            )
        if plain := sum(starved(s, w, seen) for s, _, w, seen in sites):
            found.append(f"{plain} experts saw under {STARVED} calibration tokens a kept neuron: no refit")
        floored = [s for s, r, w, _ in sites if w == r.floor and w < r.full]
        if floored:
            kind = "blocks" if self.top_k else "layers"
            found.append(f"{len(floored)} {kind} stand at their floor (plan.min_width)")
        if self.total is None and sum(widths) == self.budget.neurons:
            found.append(f"no narrower fold stays within {asked(self.options)}: every neuron is kept")
        if self.total is not None and self.total - sum(widths) > 0.01 * self.total:
            found.append(
                f"widths are multiples of {self.step}: {sum(widths):,} neurons stay where {self.total:,} "
                f"were asked ({sum(widths) / self.budget.neurons:.1%} of the source); "
                "a smaller plan.align comes closer"
            )
        return found


def asked(options: Mapping[str, Any]) -> str:
    """The target as the user typed it."""
    given = {k: options[k] for k in ("ffn", "size", "ratio")}
    given["target.max_nll_rise"] = options["target"]["max_nll_rise"]
    return next(f"{k}={v}" for k, v in given.items() if v is not None)


def _sampled(curves: Sequence[Tensor], stops: Sequence[int]) -> list[list[float]]:
    """Each curve at the same fractions of its width; ``stops`` are widths of the first layer."""
    last = stops[-1]
    return [[float(c[round(s / last * (len(c) - 1))]) for s in stops] for c in curves]
