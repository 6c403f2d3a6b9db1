"""Sharing a total of neurons out to layers: by one fraction, by greedy narrowing, by dynamic programming."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from .parts import Room


def stops(room: Room, step: int) -> list[int]:
    """The widths that a layer may have, ascending; the full one need be no multiple of ``step``."""
    return [room.full] if room.protected else [*range(room.floor, room.full, step), room.full]


def by_fraction(rooms: Sequence[Room], total: int, step: int) -> list[int]:
    """Widths ⌊f·F⌋ in steps, for the largest f whose sum does not exceed ``total``.

    :raises ValueError: where even the floors exceed it.
    """
    if (widths := next((w for w in reversed(ladder(rooms, step)) if sum(w) <= total), None)) is None:
        raise ValueError(f"the floors keep more than {total} neurons")
    return widths


def ladder(rooms: Sequence[Room], step: int) -> list[list[int]]:
    """Every set of widths that one fraction of all layers gives, ascending."""
    fractions = {k * step / r.full for r in rooms for k in range(1, r.full // step + 1)} | {1.0, 0.0}
    cut = {tuple(_width(r, f, step) for r in rooms) for f in fractions}
    return sorted(map(list, cut), key=sum)


def _width(room: Room, fraction: float, step: int) -> int:
    if room.protected or fraction >= 1:
        return room.full
    return max(room.floor, int(fraction * room.full / step + 1e-9) * step)


def narrowed(rooms: Sequence[Room], total: int, step: int, loss: Callable[[int, int], float]) -> list[int]:
    """From full width, one stop at a time from the layer that loses least by it, until ``total`` is met.

    :param loss: (layer, width) -> its cost at that width.
    :raises ValueError: where even the floors exceed ``total``.
    """
    ladders = [stops(r, step)[::-1] for r in rooms]
    at = [0] * len(rooms)

    def move(i: int) -> tuple[float, int] | None:
        wide, narrow = ladders[i][at[i]], ladders[i][at[i] + 1 : at[i] + 2]
        return (loss(i, narrow[0]) - loss(i, wide), i) if narrow else None

    heap = [m for i in range(len(rooms)) if (m := move(i))]
    heapq.heapify(heap)
    while sum(ladder[k] for ladder, k in zip(ladders, at, strict=True)) > total:
        if not heap:
            raise ValueError(f"the floors keep more than {total} neurons")
        i = heapq.heappop(heap)[1]
        at[i] += 1
        if (following := move(i)) is not None:
            heapq.heappush(heap, following)
    return [ladder[k] for ladder, k in zip(ladders, at, strict=True)]


def by_margin(rooms: Sequence[Room], values: Sequence[Sequence[float]], total: int, step: int) -> list[int]:
    """As many of each layer as lie above one threshold over all values, within the rooms.

    Counts are rounded up to a stop; then the stops whose best value is least leave until ``total`` holds, and
    what is left of it goes to those whose best value is largest.

    :param values: of each layer's neurons, descending.
    :raises ValueError: where even the floors exceed ``total``.
    """
    ladders = [stops(r, step) for r in rooms]
    pairs = list(zip(rooms, values, strict=True))
    pooled = sorted((v for room, layer in pairs if not room.protected for v in layer), reverse=True)
    left = max(0, total - sum(r.full for r in rooms if r.protected))
    threshold = pooled[left] if left < len(pooled) else -math.inf
    widths = [_stop_above(k, sum(v > threshold for v in x)) for k, x in zip(ladders, values, strict=True)]
    while sum(widths) > total:
        # (the best value that would leave, layer, the width below)
        narrower = [(values[n][below], n, below) for n, below in enumerate(_below(ladders, widths)) if below]
        if not narrower:
            raise ValueError(f"the floors keep more than {total} neurons")
        _, layer, width = min(narrower)
        widths[layer] = width
    while wider := [
        (-values[n][widths[n]], n, above)
        for n, above in enumerate(_above(ladders, widths))
        if above and sum(widths) + above - widths[n] <= total
    ]:
        _, layer, width = min(wider)
        widths[layer] = width
    return widths


def _stop_above(ladder: Sequence[int], count: int) -> int:
    return next((w for w in ladder if w >= count), ladder[-1])


def _below(ladders: Sequence[Sequence[int]], widths: Sequence[int]) -> list[int]:
    """The next narrower stop of each layer, 0 where there is none."""
    return [max((w for w in k if w < at), default=0) for k, at in zip(ladders, widths, strict=True)]


def _above(ladders: Sequence[Sequence[int]], widths: Sequence[int]) -> list[int]:
    """The next wider stop of each layer, 0 where there is none."""
    return [min((w for w in k if w > at), default=0) for k, at in zip(ladders, widths, strict=True)]


def cheapest(rooms: Sequence[Room], total: int) -> list[int]:
    """The widths of least summed ``cost`` whose sum does not exceed ``total``: exact dynamic programming.

    O(layers · stops · total / unit), the unit being what all stops are multiples of.

    :raises ValueError: where even the narrowest stops exceed ``total``.
    """
    import numpy as np

    unit = math.gcd(*(w for room in rooms for w, _ in room.cost))
    size = total // unit + 1
    best, choices = np.zeros(size), []
    for room in rooms:
        costs = np.full((len(room.cost), size), np.inf)
        for row, (width, cost) in zip(costs, room.cost, strict=True):
            used = width // unit
            row[used:] = best[: max(0, size - used)] + cost
        choices.append(costs.argmin(0))
        best = costs.min(0)
    if not np.isfinite(best[-1]):
        raise ValueError(f"the floors keep more than {total} neurons")
    widths, left = [], size - 1
    for room, choice in zip(reversed(rooms), reversed(choices), strict=True):
        widths.append(room.cost[int(choice[left])][0])
        left -= widths[-1] // unit
    return widths[::-1]
