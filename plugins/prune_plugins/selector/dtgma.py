"""dtgma: gates trained with the task's loss decide which neurons stay, and how many of each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prune import hookimpl
from prune.allocation import by_fraction, by_margin
from prune.parts import ReadOut, Room, Workbench

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class DtgmaOptions:
    _target_: str = "prune_plugins.selector.dtgma.Dtgma"
    steps: int = 240  # of training; six forward passes' FLOPs over the tokens of each
    tokens: int = 1024  # a step
    rate: float = 0.1  # of Adam, on the logits of the gates
    l1: float = 0.01  # pressure toward closed gates at first
    l1_rise: float = 0.005  # added at every look while more than the target is open
    every: int = 30  # steps between two looks at val; the best mask seen there is taken
    val_tokens: int = 4096  # of val, at every look


class Dtgma:
    """Trains a gate on every FFN neuron through the whole model; the weights stand still."""

    def __init__(self, steps: int, tokens: int, every: int, val_tokens: int, **pressure: float) -> None:
        counts = {"steps": steps, "tokens": tokens, "every": every, "val_tokens": val_tokens}
        low = [f"selector.{n}={v}: give 1 or more" for n, v in counts.items() if v < 1]
        low += [f"selector.{n}={v}: give 0 or more" for n, v in pressure.items() if v < 0]
        if low:
            raise ValueError("; ".join(low))
        self.settings: dict[str, Any] = {**counts, **pressure}
        self.history: Sequence[Mapping[str, Any]] = ()
        self.logits: Sequence[Tensor] = ()
        self.same = True

    def learn(self, bench: Workbench) -> None:
        """Train toward the target; under a search, toward half of the neurons."""
        from prune.nn.gates import Schedule, train_gates

        rooms, whole = bench.rooms, sum(r.full for r in bench.rooms)
        total = whole // 2 if bench.total is None else bench.total
        total = max(total, sum(r.full if r.protected else r.floor for r in rooms))
        self.same = bench.same_width

        def hard(logits: Sequence[Tensor]) -> list[Tensor]:
            widths = self._shared(logits, rooms, total, bench.step)
            return [_mask(m, w) for m, w in zip(logits, widths, strict=True)]

        schedule = Schedule(**self.settings)
        self.logits, self.history = train_gates(bench, schedule, total / whole, hard)

    def order(self, site: ReadOut) -> Tensor:
        """Neurons by descending logit, ties by index, int64 [F]."""
        return self.logits[site.layer].argsort(descending=True, stable=True)

    def widths(self, rooms: Sequence[Room], total: int, step: int) -> list[int]:
        """As many of each layer as one threshold over all gates leaves open; a forecast has one fraction.

        :raises ValueError: where even the floors exceed ``total``.
        """
        return self._shared(self.logits, rooms, total, step)

    def _shared(self, logits: Sequence[Tensor], rooms: Sequence[Room], total: int, step: int) -> list[int]:
        if self.same or not logits:
            return by_fraction(rooms, total, step)
        values = [m.detach().sort(descending=True).values.tolist() for m in logits]
        return by_margin(rooms, values, total, step)


def _mask(logits: Tensor, width: int) -> Tensor:
    """1 for the ``width`` largest, 0 for the others, float32 [F]."""
    mask = logits.new_zeros(len(logits))
    mask[logits.argsort(descending=True, stable=True)[:width]] = 1
    return mask


@hookimpl
def prune_selectors() -> dict[str, type]:
    return {"dtgma": DtgmaOptions}
