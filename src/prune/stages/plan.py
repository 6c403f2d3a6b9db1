"""plan: how wide every layer stays, and which neurons those are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune.parts import Learns, Prices, ReadOut, Shares, Workbench, build
from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.nn.model import LazyModel
    from prune.nn.planning import Planner

#: What decides a plan only where it runs the model.
MEASURING = ("illuminate", "fold", "loss_on", "dtype", "device", "seed")


class Plan(Stage):
    """Orders each layer's neurons, draws its refit-error curve, shares out the target."""

    uses = ("ffn", "size", "ratio", "target", "selector", "allocator", "plan", "save", "codec.group",
            *MEASURING, "stream", "threads")  # fmt: skip
    tunes = ("stream", "threads")
    reads = ("weights", "answers", "grams")
    writes = ("plan",)

    def settle(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Alignment and codec group matter through their least common multiple alone."""
        from prune.arithmetic import width_step

        plan = dict(options["plan"])
        step = width_step(plan.pop("align"), options["codec.group"])
        unused = () if measures(options) else MEASURING
        kept = {k: v for k, v in options.items() if k not in unused}
        return {**kept, "codec.group": None, "plan": plan | {"step": step}, "save": options["save"]["widths"]}

    def run(self, job: Job) -> dict[str, Any]:
        from prune.nn.gram import energies, gram_facts
        from prune.nn.model import LazyModel
        from prune.nn.open import open_model
        from prune.nn.planning import Planner
        from prune.nn.search import keep_sets

        measuring, folder = measures(job.options), job.inputs["weights"]
        model = open_model(folder, job.options) if measuring else LazyModel(folder)
        planner = Planner(model, job.options)
        facts = gram_facts(job.inputs["grams"])
        planner.rank(facts["routed_train"])
        planner.check()
        bench = _workbench(job, model, planner) if measuring else None
        found = _learnt(planner, bench)
        orders, curves = _survey(model, planner, job)
        planner.know(curves, energies(facts), _priced(planner, bench, orders))
        widths, search = _decide(planner, orders, bench, job)
        plan = planner.table(widths, curves, facts["tokens_train"]) | found | search
        _write(job.out / "plan", plan, keep_sets(model.sites, orders, widths))
        for warning in plan["warnings"]:
            job.notice(warning)
        return dict(plan["totals"])


def _learnt(planner: Planner, bench: Workbench | None) -> dict[str, Any]:
    """Let a selector that learns do so; its curve."""
    if bench is None or not isinstance(planner.selector, Learns):
        return {}
    planner.selector.learn(bench)
    return {"learning": list(planner.selector.history)}


def _priced(
    planner: Planner, bench: Workbench | None, orders: Sequence[Tensor]
) -> list[Sequence[float]] | None:
    """What the allocator measured of every stop, where it is asked and measures anything."""
    if bench is None or isinstance(planner.selector, Shares) or not isinstance(planner.allocator, Prices):
        return None
    return planner.allocator.price(bench, orders, planner.stops)


def measures(options: Mapping[str, Any]) -> bool:
    """Whether this plan runs the model: for its selector, its allocator or its target."""
    selector, allocator = build(options["selector"]), build(options["allocator"])
    searches = options["target"]["max_nll_rise"] is not None
    return searches or isinstance(selector, Learns) or isinstance(allocator, Prices)


def _workbench(job: Job, model: LazyModel, planner: Planner) -> Workbench:
    from prune.nn.open import workbench

    return workbench(
        job,
        model,
        grams=job.inputs["grams"],
        rooms=planner.rooms,
        total=planner.total,
        step=planner.step,
        same_width=job.options["save"]["widths"] == "uniform",
    )


def _survey(model: LazyModel, planner: Planner, job: Job) -> tuple[list[Tensor], list[Tensor]]:
    """Order and refit-error curve of every site."""
    from safetensors.torch import load_file

    from prune.nn.gram import gram_file
    from prune.nn.refit import error_curve

    orders, curves = [], []
    for site in model.sites:
        gram = load_file(gram_file(job.inputs["grams"], site.layer, site.part))["train"]
        weight = model.read_out(site)
        orders.append(_dead_last(planner.selector.order(ReadOut(site.layer, gram, weight)), gram))
        curves.append(error_curve(gram, weight, orders[-1]))
        job.progress(site.index + 1, len(model.sites))
    return orders, curves


def _dead_last(order: Tensor, gram: Tensor) -> Tensor:
    """Neurons that never fired go before any that did, however a selector breaks ties."""
    dead = gram.diagonal()[order] == 0
    return order[dead.int().argsort(stable=True)]


def _decide(
    planner: Planner, orders: Sequence[Tensor], bench: Workbench | None, job: Job
) -> tuple[list[int], dict[str, Any]]:
    """The widths under the target; with a search, its record."""
    if planner.total is not None or bench is None:
        return planner.widths(), {}
    from prune.nn.folding import Evidence
    from prune.nn.search import Search

    evidence = Evidence(job.inputs["answers"], job.inputs["grams"])
    widths, record = Search(bench, planner, orders, evidence, job.options).run()
    return widths, {"search": record}


def _write(folder: Path, plan: Mapping[str, Any], keep: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    save_file(dict(keep), folder / "keep.safetensors")
