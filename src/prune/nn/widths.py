"""What one width a site means for a file. A width of 0 is an expert that leaves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .layout import COUNT_KEYS, Site, experts_kept
from .skeleton import WIDTHS


def widest(sites: Sequence[Site], widths: Sequence[int]) -> dict[str, int]:
    """Key of config.json -> the widest that is left of the sites that it speaks of."""
    found: dict[str, int] = {}
    for site, width in zip(sites, widths, strict=True):
        found[site.width_key] = max(width, found.get(site.width_key, 0))
    return found


def saved(sites: Sequence[Site], widths: Sequence[int], mode: str) -> list[int]:
    """The widths in the file: under ``padded`` as wide as the widest that has the same key."""
    if mode != "padded":
        return list(widths)
    most = widest(sites, widths)
    return [w and most[s.width_key] for s, w in zip(sites, widths, strict=True)]


def even(sites: Sequence[Site], widths: Sequence[int]) -> bool:
    """Whether plain transformers loads such a file: one width a key, one number of experts."""
    counts = set(experts_kept(sites, widths).values())
    return len(counts) <= 1 and list(widths) == saved(sites, widths, "padded")


def places(sites: Sequence[Site], widths: Sequence[int]) -> Iterator[tuple[Site, Site]]:
    """(site, the one whose names its tensors take): kept experts close the gaps that dropped ones leave."""
    experts = {(s.layer, s.expert): s for s in sites if s.expert is not None}
    taken: dict[int, int] = {}
    for site, width in zip(sites, widths, strict=True):
        if site.expert is None:
            yield site, site
        elif width:
            taken[site.layer] = taken.get(site.layer, -1) + 1
            yield site, experts[site.layer, taken[site.layer]]


def width_changes(sites: Sequence[Site], widths: Sequence[int], config: Any) -> dict[str, Any]:
    """Keys to set in config.json for the widths in a file; None removes one.

    :param config: config.json of the source as it stands there.
    """
    counts = experts_kept(sites, widths)
    most = max(counts.values(), default=0)
    exact = None if even(sites, widths) else _listed(sites, widths, most)
    keys = [k for k in COUNT_KEYS if k in config] if counts else []
    return {**widest(sites, widths), WIDTHS: exact, **dict.fromkeys(keys, most)}


def _listed(sites: Sequence[Site], widths: Sequence[int], most: int) -> list[int]:
    """The widths of a model of that many experts a layer, in order of its sites."""
    at = {place.index: widths[site.index] for site, place in places(sites, widths)}
    return [at.get(s.index, 0) for s in sites if s.expert is None or s.expert < most]
