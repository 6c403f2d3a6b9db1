"""Which experts of a mixture leave the file: those that carry least of the router's picks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from prune.parts import Room

from .budget import least_of
from .layout import Site, experts_kept

FEWEST = 8  #: experts that a layer keeps, where it has as many

NEAR = 0.98  #: of a total is as good as the total


class Cover:
    """Experts in the order in which they leave, and widths for those that stay.

    Of every layer the smallest set of its most picked experts stays whose share of the picks reaches a
    cover; as the cover falls, experts leave step by step.

    :param steps: indices of sites, those that leave together in one list.
    """

    def __init__(self, sites: Sequence[Site], steps: Sequence[Sequence[int]]) -> None:
        self.sites, self.steps = sites, steps
        self._shares = any(s.shared for s in sites)

    @property
    def sizes(self) -> list[int]:
        """Neurons after each number of steps, from none to all of them, no width narrowed."""
        gone = accumulate(sum(self.sites[i].width for i in step) for step in self.steps)
        whole = sum(s.width for s in self.sites)
        return [whole, *(whole - neurons for neurons in gone)]

    def left(self, rooms: Sequence[Room], steps: int | None = None) -> dict[int, Room]:
        """Those of the sites that stay after so many steps, by index; None: all steps."""
        gone = {i for step in self.steps[:steps] for i in step}
        return {i: room for i, room in enumerate(rooms) if i not in gone}

    def widths(
        self, rooms: Sequence[Room], total: int, share: Callable[[Sequence[Room]], Sequence[int]]
    ) -> list[int]:
        """A width a site, 0 for an expert that leaves; the sum comes near to ``total`` from below.

        :param share: gives the sites that stay their widths.
        """
        found: list[list[int]] = []
        for chosen in self._tried(rooms, total):
            widths = dict(zip(chosen, share(list(chosen.values())), strict=True))
            found.append([widths.get(i, 0) for i in range(len(rooms))])
            if sum(found[-1]) >= NEAR * total:
                return found[-1]
        if not found:
            raise ValueError(f"the floors keep more than {total} neurons")
        return max(found, key=sum)

    def _tried(self, rooms: Sequence[Room], total: int) -> Iterator[dict[int, Room]]:
        """What may be narrowed, the best first.

        As few steps as get below the total, then one fewer: narrowing a few large experts may come nearer.
        Of the shared expert, which every token passes, and the others, one stays whole where that suffices.
        """
        enough = next((n for n, size in enumerate(self.sizes) if size <= total), len(self.steps))
        for steps in sorted({enough, max(0, enough - 1)}, reverse=True):
            left = self.left(rooms, steps)
            ways = [self._protected(left, shared) for shared in (True, False)] if self._shares else []
            for way in (*ways, left):
                if least_of(way.values()) <= total:
                    yield way

    def _protected(self, rooms: Mapping[int, Room], shared: bool) -> dict[int, Room]:
        """The same, the shared experts whole, or all others."""
        return {
            i: replace(r, protected=r.protected or self.sites[i].shared is shared) for i, r in rooms.items()
        }


def cover_of(sites: Sequence[Site], picks: Sequence[int], top_k: int, alike: bool) -> Cover:
    """Experts leave until :data:`FEWEST` of a layer stay, or the router's top k where it has fewer.

    :param picks: how many tokens each site was routed.
    :param alike: every layer keeps as many, as plain transformers has it: one of each leaves at a time.
    """
    leave = [_leaving(experts, picks, top_k) for experts in _layers(sites)]
    if alike:
        return Cover(sites, [[i for _, i in step] for step in zip(*leave, strict=True)])
    return Cover(sites, [[i] for _, i in heapq.merge(*leave, reverse=True)])


def _layers(sites: Sequence[Site]) -> list[list[int]]:
    """The experts of each sparse layer."""
    found: dict[int, list[int]] = {}
    for site in sites:
        if site.expert is not None:
            found.setdefault(site.layer, []).append(site.index)
    return list(found.values())


def _leaving(experts: Sequence[int], picks: Sequence[int], top_k: int) -> list[tuple[float, int]]:
    """(the cover below which it leaves, index) of a layer's experts, in the order in which they leave."""
    ranked = sorted(experts, key=lambda i: (-picks[i], i))
    before = accumulate((picks[i] for i in ranked), initial=0)
    total = max(1, sum(picks[i] for i in ranked))
    stay = max(top_k, FEWEST if len(ranked) >= FEWEST else 0)
    return [(share / total, i) for share, i in zip(before, ranked, strict=False)][stay:][::-1]


def experts_left(sites: Sequence[Site], widths: Sequence[int], picks: Sequence[int]) -> dict[str, Any]:
    """Experts before and after, and the least share of a layer's picks that the kept ones had."""
    counts = experts_kept(sites, widths)
    whole, kept = dict.fromkeys(counts, 0), dict.fromkeys(counts, 0)
    for site, width, seen in zip(sites, widths, picks, strict=True):
        if site.expert is not None:
            whole[site.layer] += seen
            kept[site.layer] += seen * (width > 0)
    return {
        "experts_before": sum(s.expert is not None for s in sites),
        "experts_after": sum(counts.values()),
        "picks_kept": min(kept[i] / max(1, whole[i]) for i in counts),
    }
