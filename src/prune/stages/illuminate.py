"""illuminate: which neurons the task lights up, as a Gram matrix a layer, on train and on val."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prune.stage import Job, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from prune.nn.walk import Stream


class Illuminate(Stage):
    """One pass over the teacher's train and val records."""

    uses = ("illuminate", "dtype", "device", "stream", "threads")
    tunes = ("stream", "threads")
    reads = ("weights", "answers")
    writes = ("grams",)
    version = 2

    def run(self, job: Job) -> dict[str, Any]:
        from prune.arithmetic import parse_bytes
        from prune.data.calibration import calibration
        from prune.nn.open import open_model
        from prune.nn.walk import Stream

        model = open_model(job.inputs["weights"], job.options)
        train, val = calibration(job.inputs["answers"], job.options["illuminate"], model.widest)
        budget = parse_bytes(job.options["stream"]["states"])
        stream = Stream(model, [*train, *val], budget, job.out)
        facts = _walk(stream, len(train), job)
        stream.close()
        _warn(facts, model.widest, job)
        (job.out / "grams" / "grams.json").write_text(json.dumps(facts, indent=1) + "\n")
        return {k: v for k, v in facts.items() if k.startswith("tokens")}


def _walk(stream: Stream, split: int, job: Job) -> dict[str, Any]:
    """Gather and write layer by layer, one Gram in memory at a time."""
    from safetensors.torch import save_file

    from prune.nn.gram import gram_file, layer_grams

    folder = job.out / "grams"
    folder.mkdir()
    parts = {"train": range(split), "val": range(split, len(stream.batches))}
    facts: dict[str, Any] = {f"energy_{part}": [] for part in parts}
    for part, batches in parts.items():
        facts[f"tokens_{part}"] = sum(int(stream.batches[b].counted.sum()) for b in batches)
    routed: dict[str, list[int]] = {f"routed_{part}": [] for part in parts}
    for i, _ in stream.layers():
        tensors: dict[str, dict[str, Tensor]] = {}
        for part, batches in parts.items():
            for site, gram in layer_grams(stream, i, batches):
                facts[f"energy_{part}"].append(gram.energy)
                routed[f"routed_{part}"].append(gram.tokens)
                found = tensors.setdefault(site.part, {})
                found[part], mean = gram.finish()
                found.setdefault("mean", mean)
        for name, found in tensors.items():
            save_file(found, gram_file(folder, i, name))
        job.progress(i + 1, len(stream.model.layers), tokens=facts["tokens_train"] + facts["tokens_val"])
    return facts | (routed if stream.model.layout.mixture else {})


def _warn(facts: Mapping[str, int], widest: int, job: Job) -> None:
    per_neuron = facts["tokens_train"] / widest
    if per_neuron < 10:
        job.notice(
            f"{facts['tokens_train']:,} calibration tokens are {per_neuron:.1f} a neuron; "
            "under 10 the refit overfits: give more prompts or illuminate.tokens=0"
        )
