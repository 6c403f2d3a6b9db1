"""A whole model folded to its keep-sets, from one folder into another, a feed-forward block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from prune.arithmetic import parse_bytes
from prune.data.calibration import calibration

from .checkpoint import read_json
from .folder import Make, copied, write_folder
from .forecast import narrowed_specs
from .layout import Site, experts_kept
from .model import LazyModel
from .narrow import narrowed, padded
from .oneshot import OneShotFold
from .sequential import SequentialFold
from .widths import places, saved, width_changes

Refits = Callable[[Site, Tensor], tuple[Tensor | None, Tensor | None]]


@dataclass(frozen=True)
class Evidence:
    """What a fold is calibrated on."""

    answers: Path  #: finalized teacher data
    grams: Path  #: of illuminate


def fold(
    model: LazyModel,
    keep: Mapping[str, Tensor],
    evidence: Evidence,
    out: Path,
    options: Mapping[str, Any],
    progress: Callable[[int, int], Any],
) -> list[dict[str, Any]]:
    """Write the folded model to ``out``; a row a site of what its refit did.

    :param keep: site -> kept neurons, int64, ascending.
    :param options: ``fold``, ``save``, ``illuminate``, ``stream``.
    """
    way = _way(model, evidence, options, out.parent)
    rows: list[dict[str, Any]] = []

    def refit(site: Site, weight: Tensor) -> tuple[Tensor | None, Tensor]:
        """Correction and bias shift of one site; notes what was chosen."""
        how = options["fold"]
        best, plain, shift = way.refit(site, weight, keep[site.name], how["ridge"], how["refit"])
        rows.append(_row(site, best, plain))
        progress(site.index + 1, len(model.sites))
        return best.correction, shift

    cut(model, keep, refit, out, options["save"])
    way.close()
    return rows


def _way(model: LazyModel, evidence: Evidence, options: Mapping[str, Any], scratch: Path) -> Any:
    """How ``fold.mode`` has the sites refitted; experts are refitted one by one in either mode."""
    if options["fold"]["mode"] == "oneshot" or model.layout.mixture:
        return OneShotFold(evidence.grams)
    train, val = calibration(evidence.answers, options["illuminate"], model.widest)
    return SequentialFold(model, train, val, parse_bytes(options["stream"]["states"]), scratch)


def cut(
    model: LazyModel, keep: Mapping[str, Tensor], refit: Refits, out: Path, save: Mapping[str, Any]
) -> None:
    """Write a model narrowed to keep-sets; a site that keeps nothing is an expert that leaves.

    :param refit: (site, W float32 [D, F]) -> what its read-out gains: correction and bias shift.
    :param save: ``widths``, ``shard``.
    """
    widths = saved(model.sites, [len(keep[s.name]) for s in model.sites], save["widths"])
    specs = narrowed_specs(model, widths)
    changes = width_changes(model.sites, widths, read_json(model.folder / "config.json"))
    pieces = _Pieces(model, keep, refit, widths).all(specs)
    write_folder(model, out, specs, pieces, changes, parse_bytes(save["shard"]))


class _Pieces:
    """Makes the output's tensors.

    :param widths: in the file.
    """

    def __init__(
        self, model: LazyModel, keep: Mapping[str, Tensor], refit: Refits, widths: Sequence[int]
    ) -> None:
        self.model, self.keep, self.refit, self.widths = model, keep, refit, widths
        self._known = set(model.names)

    def all(self, specs: Mapping[str, Any]) -> Iterator[tuple[list[str], Make]]:
        """The blocks in order of layers, the routers, then every other tensor by itself."""
        done: set[str] = set()
        for site, place in places(self.model.sites, self.widths):
            names, into = self._names(site), self._names(place)
            done.update(into.values())
            yield list(names.values()), partial(self._fold, site, names, into)
        for layer in experts_kept(self.model.sites, self.widths):
            (name,) = self.model.stored_names(self.model.router(layer))
            done.add(name)
            yield [name], partial(self._routed, layer)
        yield from (([name], copied) for name in specs if name not in done)

    def _names(self, site: Site) -> dict[str, str]:
        """Parameter name -> name on disk, of a block's weights and biases."""
        modules = [*(r.module for r in site.read_ins), site.read_out]
        wanted = [f"{m}.{end}" for m in modules for end in ("weight", "bias")]
        return {n: self.model.stored_names(n)[0] for n in wanted if n in self._known}

    def _fold(
        self, site: Site, names: Mapping[str, str], into: Mapping[str, str], stored: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        tensors = {name: stored[on_disk] for name, on_disk in names.items()}
        weight = tensors[f"{site.read_out}.weight"]
        correction, shift = self.refit(site, (weight.T if site.transposed else weight).float())
        result = narrowed(site, tensors, self.keep[site.name], correction, shift)
        if (width := self.widths[site.index]) > len(self.keep[site.name]):
            result = padded(site, result, width)
        there = dict(zip(names, into.values(), strict=True))
        return {there[name]: tensor for name, tensor in result.items()}

    def _routed(self, layer: int, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The rows of the experts that stay."""
        kept = [s.expert for s in self.model.sites if s.layer == layer and self.widths[s.index]]
        rows = [i for i in kept if i is not None]
        return {name: weight[rows] for name, weight in stored.items()}


def _row(site: Site, best: Any, plain: float) -> dict[str, Any]:
    choice = "plain" if best.ridge is None else f"ridge {best.ridge:g}"
    return {
        **site.label,
        "choice": choice,
        "error_plain": plain,
        "error": best.error,
        "damping": best.damping,
    }
