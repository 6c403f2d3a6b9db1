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
        from prune.nn.gram import gram_facts
        from prune.nn.model import LazyModel
        from prune.nn.planning import Planner

        model = LazyModel(job.inputs["source"])
        planner = Planner(model, job.options)
        planner.check()
        facts = gram_facts(job.inputs["grams"])
        orders, curves = _survey(model, job)
        widths = planner.widths(curves, facts["energy_train"])
        keep = {str(i): o[:w].sort().values for i, (o, w) in enumerate(zip(orders, widths, strict=True))}
        plan = planner.table(widths, curves, facts["tokens_train"])
        _write(job.out / "plan", plan, keep)
        for warning in plan["warnings"]:
            job.notice(warning)
        return dict(plan["totals"])


def _survey(model: LazyModel, job: Job) -> tuple[list[Tensor], list[Tensor]]:
    """Order and refit-error curve of every layer."""
    from safetensors.torch import load_file

    from prune.nn.gram import gram_file
    from prune.nn.refit import error_curve

    selector, orders, curves = build(job.options["selector"]), [], []
    for site in model.sites:
        gram = load_file(gram_file(job.inputs["grams"], site.layer))["train"]
        weight = model.tensor(f"{site.read_out}.weight")
        weight = weight.T.contiguous() if site.transposed else weight
        orders.append(selector.order(ReadOut(site.layer, gram, weight)))
        curves.append(error_curve(gram, weight, orders[-1]))
        job.progress(site.layer + 1, len(model.sites))
    return orders, curves


def _write(folder: Path, plan: Mapping[str, Any], keep: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    save_file(keep, folder / "keep.safetensors")
