"""plan: how wide every layer stays, and which neurons those are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.parts import ReadOut, build
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.nn.model import LazyModel


class Plan(Stage):
    """Orders each layer's neurons, draws its refit-error curve, shares out the target."""

    uses = ("ffn", "size", "ratio", "selector", "allocator", "plan", "save.widths", "codec.group", "threads")
    tunes = ("threads",)
    reads = ("source", "grams")
    writes = ("plan",)

    def settle(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Alignment and codec group matter through their least common multiple alone."""
        from prune.arithmetic import width_step

        plan = dict(options["plan"])
        step = width_step(plan.pop("align"), options["codec.group"])
        return {**options, "codec.group": None, "plan": plan | {"step": step}}

    def run(self, job: Job) -> dict[str, Any]:
        from prune.nn.model import LazyModel
        from prune.nn.planning import Planner

        model = LazyModel(job.inputs["source"])
        planner = Planner(model, job.options)
        planner.check()
        sites = _survey(model, job)
        widths = planner.widths([s["curve"] for s in sites], [s["energy"] for s in sites])
        keep = {
            str(i): s["order"][:w].sort().values for i, (s, w) in enumerate(zip(sites, widths, strict=True))
        }
        tokens = json.loads((job.inputs["grams"] / "grams.json").read_text())
        plan = planner.table(widths, [s["curve"] for s in sites], tokens["tokens_train"])
        _write(job.out / "plan", plan, keep)
        for warning in plan["warnings"]:
            job.notice(warning)
        return dict(plan["totals"])


def _survey(model: LazyModel, job: Job) -> list[dict[str, Any]]:
    """Order, error curve and output energy of every layer."""
    selector, found = build(job.options["selector"]), []
    for site in model.sites:
        found.append(_survey_layer(model, site.layer, selector, job.inputs["grams"]))
        job.progress(site.layer + 1, len(model.sites))
    return found


def _survey_layer(model: LazyModel, layer: int, selector: Any, grams: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    from prune.nn.gram import gram_file
    from prune.nn.refit import error_curve, output_energy

    site = model.sites[layer]
    gram = load_file(gram_file(grams, layer))["train"]
    weight = model.tensor(f"{site.read_out}.weight")
    weight = weight.T.contiguous() if site.transposed else weight
    order = selector.order(ReadOut(layer, gram, weight))
    return {"order": order, "curve": error_curve(gram, weight, order), "energy": output_energy(gram, weight)}


def _write(folder: Path, plan: Mapping[str, Any], keep: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    save_file(keep, folder / "keep.safetensors")
