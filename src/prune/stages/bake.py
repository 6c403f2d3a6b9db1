"""bake: soft gates on the FFN neurons, trained on the task and folded into the read-outs; widths stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.parts import Workbench


class Bake(Stage):
    """Off unless a recipe or ``stages`` names it, before illuminate, which then ranks through the gains."""

    uses = ("bake", "illuminate", "loss_on", "save.shard", "dtype", "device", "stream", "seed", "threads")
    tunes = ("stream", "threads")
    reads = ("weights", "answers")
    writes = ("weights",)

    def run(self, job: Job) -> dict[str, Any]:
        from prune.arithmetic import parse_bytes
        from prune.nn.baking import bake
        from prune.nn.open import open_model, workbench

        model = open_model(job.inputs["weights"], job.options)
        gates, facts = _trained(workbench(job, model), job)
        bake(model, gates, job.out / "weights", parse_bytes(job.options["save.shard"]))
        return facts


def _trained(bench: Workbench, job: Job) -> tuple[list[Tensor], dict[str, Any]]:
    """The gates that val likes best; open ones where none is better than no gate."""
    import torch

    from prune.nn.gates import Schedule, train_gates
    from prune.nn.nll import mean, score
    from prune.nn.windows import first

    logits, history = train_gates(bench, Schedule(**job.options["bake"], l1_rise=0.0), 0.0, None)
    texts = first(bench.val, job.options["bake"]["val_tokens"])
    source = mean(score(bench.model, texts, window=bench.window, budget=bench.budget, scratch=bench.scratch))
    best = min(row["val_nll"] for row in history)
    facts = {"val_nll_source": source, "val_nll": best, "accepted": best < source, "history": history}
    if best < source:
        return [m.sigmoid() for m in logits], facts
    job.notice(f"gates do not help (val NLL {best:.4f}, without {source:.4f}): the weights stay as they are")
    return [torch.ones_like(m) for m in logits], facts
