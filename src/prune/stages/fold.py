"""fold: cuts the neurons that the plan drops and refits the kept read-out columns to stand in for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prune.errors import UsageError
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.nn.layout import Site
    from prune.nn.model import LazyModel


class Fold(Stage):
    """Per layer, the plain cut or the ridge that errs least on val."""

    uses = ("fold", "save", "illuminate", "dtype", "device", "stream", "threads")
    tunes = ("stream", "threads")
    reads = ("source", "answers", "grams", "plan")
    writes = ("weights", "folding")

    def run(self, job: Job) -> dict[str, Any]:
        from safetensors.torch import load_file

        from prune.arithmetic import parse_bytes
        from prune.nn.folder import width_changes, write_folder
        from prune.nn.forecast import narrowed_specs
        from prune.nn.open import open_model

        model = open_model(job.inputs["source"], job.options)
        keep = load_file(job.inputs["plan"] / "keep.safetensors")
        widths = [len(keep[str(s.layer)]) for s in model.sites]
        mode = job.options["save"]["widths"]
        saved = [max(widths)] * len(widths) if mode == "padded" else widths
        specs = narrowed_specs(model, saved)
        rows: list[dict[str, Any]] = []
        folder = _Folder(model, job, keep, rows, max(widths) if mode == "padded" else None)
        write_folder(
            model,
            job.out / "weights",
            specs,
            folder.pieces(specs),
            width_changes(model.layout, saved, mode),
            parse_bytes(job.options["save"]["shard"]),
        )
        folder.way.close()
        (job.out / "folding").write_text(json.dumps({"layers": rows}, indent=1) + "\n")
        return {"refitted": sum(r["choice"] != "plain" for r in rows), "layers": len(rows)}


class _Folder:
    """Makes the output's tensors, a feed-forward block at a time."""

    def __init__(
        self,
        model: LazyModel,
        job: Job,
        keep: Mapping[str, Tensor],
        rows: list[dict[str, Any]],
        pad_to: int | None,
    ) -> None:
        self.model, self.keep, self.rows, self.pad_to = model, keep, rows, pad_to
        self.options, self.way, self.progress = job.options["fold"], _way(job, model), job.progress

    def pieces(self, specs: Mapping[str, Any]) -> Iterator[tuple[list[str], Callable[..., Any]]]:
        """The blocks in order of layers, then every other tensor by itself."""
        from prune.nn.folder import copied

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
        from prune.nn.narrow import narrowed, padded

        tensors = {name: stored[on_disk] for name, on_disk in names.items()}
        keep = self.keep[str(site.layer)]
        correction, shift = self._refit(site, tensors[f"{site.read_out}.weight"], keep)
        result = narrowed(site, tensors, keep, correction, shift)
        result = padded(site, result, self.pad_to) if self.pad_to else result
        return {names[name]: tensor for name, tensor in result.items()}

    def _refit(self, site: Site, weight: Tensor, keep: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Correction and bias shift of one layer; notes what was chosen."""
        weight = (weight.T if site.transposed else weight).float()
        best, plain, shift = self.way.refit(site, weight, keep, self.options["ridge"], self.options["refit"])
        self.rows.append(_row(site.layer, best, plain))
        self.progress(len(self.rows), len(self.model.sites))
        return best.correction, shift if self.options["refit"] != "off" else None


def _way(job: Job, model: LazyModel) -> Any:
    """How ``fold.mode`` has the layers refitted."""
    from prune.arithmetic import parse_bytes
    from prune.data.calibration import calibration
    from prune.nn.oneshot import OneShotFold
    from prune.nn.sequential import SequentialFold

    mode = job.options["fold"]["mode"]
    if mode == "oneshot":
        return OneShotFold(job.inputs["grams"])
    if mode != "sequential":
        raise UsageError(f"fold.mode={mode}: give oneshot or sequential")
    widest = max(s.width for s in model.sites)
    train, val = calibration(job.inputs["answers"], job.options["illuminate"], widest)
    return SequentialFold(model, train, val, parse_bytes(job.options["stream"]["states"]), job.out)


def _row(layer: int, best: Any, plain: float) -> dict[str, Any]:
    choice = "plain" if best.ridge is None else f"ridge {best.ridge:g}"
    return {
        "layer": layer,
        "choice": choice,
        "error_plain": plain,
        "error": best.error,
        "damping": best.damping,
    }
