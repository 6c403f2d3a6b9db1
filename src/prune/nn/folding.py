"""A whole model folded to its keep-sets, from one folder into another, a feed-forward block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prune.arithmetic import parse_bytes
from prune.data.calibration import calibration

from .folder import copied, width_changes, write_folder
from .forecast import narrowed_specs
from .layout import Site
from .model import LazyModel
from .narrow import narrowed, padded
from .oneshot import OneShotFold
from .sequential import SequentialFold


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
    """Write the folded model to ``out``; a row a layer of what its refit did.

    :param keep: layer -> kept neurons, int64, ascending.
    :param options: ``fold``, ``save``, ``illuminate``, ``stream``.
    """
    widths = [len(keep[str(s.layer)]) for s in model.sites]
    mode = options["save"]["widths"]
    saved = [max(widths)] * len(widths) if mode == "padded" else widths
    specs = narrowed_specs(model, saved)
    way = _way(model, evidence, options, out.parent)
    pieces = _Pieces(model, keep, way, options["fold"], max(widths) if mode == "padded" else None, progress)
    write_folder(
        model,
        out,
        specs,
        pieces.all(specs),
        width_changes(model.layout, saved, mode),
        parse_bytes(options["save"]["shard"]),
    )
    way.close()
    return pieces.rows


def _way(model: LazyModel, evidence: Evidence, options: Mapping[str, Any], scratch: Path) -> Any:
    """How ``fold.mode`` has the layers refitted."""
    if options["fold"]["mode"] == "oneshot":
        return OneShotFold(evidence.grams)
    widest = max(s.width for s in model.sites)
    train, val = calibration(evidence.answers, options["illuminate"], widest)
    return SequentialFold(model, train, val, parse_bytes(options["stream"]["states"]), scratch)


class _Pieces:
    """Makes the output's tensors."""

    def __init__(
        self,
        model: LazyModel,
        keep: Mapping[str, Tensor],
        way: Any,
        options: Mapping[str, Any],
        pad_to: int | None,
        progress: Callable[[int, int], Any],
    ) -> None:
        self.model, self.keep, self.way, self.options = model, keep, way, options
        self.pad_to, self.progress = pad_to, progress
        self.rows: list[dict[str, Any]] = []

    def all(self, specs: Mapping[str, Any]) -> Iterator[tuple[list[str], Callable[..., Any]]]:
        """The blocks in order of layers, then every other tensor by itself."""
        done: set[str] = set()
        for site in self.model.sites:
            names = self._names(site)
            done.update(names.values())
            yield list(names.values()), lambda stored, s=site, n=names: self._fold(s, n, stored)
        yield from (([name], copied) for name in specs if name not in done)

    def _names(self, site: Site) -> dict[str, str]:
        """Parameter name -> name on disk, of a block's weights and biases."""
        modules = [*(r.module for r in site.read_ins), site.read_out]
        wanted = [f"{m}.{end}" for m in modules for end in ("weight", "bias")]
        return {n: self.model.stored_names(n)[0] for n in wanted if n in self.model.names}

    def _fold(self, site: Site, names: Mapping[str, str], stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        tensors = {name: stored[on_disk] for name, on_disk in names.items()}
        keep = self.keep[str(site.layer)]
        correction, shift = self._refit(site, tensors[f"{site.read_out}.weight"], keep)
        result = narrowed(site, tensors, keep, correction, shift)
        result = padded(site, result, self.pad_to) if self.pad_to else result
        return {names[name]: tensor for name, tensor in result.items()}

    def _refit(self, site: Site, weight: Tensor, keep: Tensor) -> tuple[Tensor | None, Tensor]:
        """Correction and bias shift of one layer; notes what was chosen."""
        weight = (weight.T if site.transposed else weight).float()
        best, plain, shift = self.way.refit(site, weight, keep, self.options["ridge"], self.options["refit"])
        self.rows.append(_row(site.layer, best, plain))
        self.progress(len(self.rows), len(self.model.sites))
        return best.correction, shift


def _row(layer: int, best: Any, plain: float) -> dict[str, Any]:
    choice = "plain" if best.ridge is None else f"ridge {best.ridge:g}"
    return {
        "layer": layer,
        "choice": choice,
        "error_plain": plain,
        "error": best.error,
        "damping": best.damping,
    }
