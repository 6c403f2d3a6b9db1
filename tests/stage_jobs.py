"""Hands the numerical stages their jobs without an engine: made-up records, real stages, tiny models."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from prune.data import records
from prune.options import FoldOptions, IlluminateOptions, PlanOptions
from prune.stage import Job
from prune.stages.fold import Fold
from prune.stages.illuminate import Illuminate
from prune.stages.plan import Plan
from prune.stages.quant import Quant

Q8 = {"_target_": "prune_plugins.codec.q8.Q8", "group": 128}
F16 = {"_target_": "prune_plugins.codec.floats.F16"}
AS_IS = {"_target_": "prune_plugins.codec.floats.AsIs"}
IMPORTANCE = {"_target_": "prune_plugins.selector.importance.Importance"}
UNIFORM = {"_target_": "prune_plugins.allocator.uniform.Uniform", "spread": False}
STREAM = {"resident": "never", "states": "1GB"}


def record(split, number, ids):
    return records.Record(
        rid=f"{split}{number}", prompt_id=f"{split}{number}", sample=0, split=split, category=None,
        messages=[{"role": "user", "content": "x"}], ids=ids, n_prompt=1, n_think=0, n_answer=len(ids) - 1,
        finish="stop", meta={"answer": "y"},
    )  # fmt: skip


def answers(folder: Path, train=(60, 90, 31), val=(40, 25), test=(20,), seed=0) -> Path:
    """Finalized teacher data of random bytes, with records of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(1, 257, (n,), generator=generator).tolist()  # noqa: E731
    lengths = {"train": train, "val": val, "test": test}
    made = [record(split, i, draw(n)) for split, ns in lengths.items() for i, n in enumerate(ns)]
    teacher = {"name": "made up", "sampling": "greedy", "max_tokens": 9}
    facts = {"teacher": teacher, "tokenizer": "0" * 64, "counts": {}, "warnings": [], "rejected": {}}
    records.write(folder, made, [], facts)
    return folder


def job(out: Path, inputs, options, notices=None):
    out.mkdir(parents=True, exist_ok=True)
    notices = [] if notices is None else notices
    return Job({"threads": 1, **options}, inputs, {}, out, out, notice=notices.append)


def illuminate(source, data, out, notices=None, dtype="float32", **options):
    """The folder of Gram matrices, and the stage's facts."""
    settings = {"illuminate": asdict(IlluminateOptions()) | options, "stream": STREAM}
    facts = Illuminate().run(
        job(out, {"weights": source, "answers": data}, {**settings, "dtype": dtype, "device": "cpu"}, notices)
    )
    return out / "grams", facts


def gram_file(grams, layer):
    return grams / f"layer-{layer:03d}.safetensors"


def plan_options(
    ffn=None, size=None, ratio=None, rise=None, widths="uniform", group=None, selector=IMPORTANCE,
    allocator=UNIFORM, **plan,
):  # fmt: skip
    return {
        "ffn": ffn, "size": size, "ratio": ratio, "target": {"max_nll_rise": rise}, "selector": selector,
        "allocator": allocator, "plan": asdict(PlanOptions()) | {"align": 16} | plan,
        "save": {"widths": widths, "shard": "5GB"}, "codec.group": group,
        "illuminate": asdict(IlluminateOptions()), "fold": asdict(FoldOptions()), "loss_on": "generated",
        "dtype": "float32", "device": "cpu", "seed": 0, "stream": STREAM,
    }  # fmt: skip


def plan(source, grams, out, notices=None, data=None, **options):
    """The plan's folder, and the plan; one that runs the model needs the teacher ``data``."""
    inputs = {"weights": source, "grams": grams, "answers": data}
    Plan().run(job(out, inputs, plan_options(**options), notices))
    return out / "plan", json.loads((out / "plan" / "plan.json").read_text())


def fold(source, grams, planned, out, widths="uniform", data=None, **options):
    """The folded weights, and a row a layer; a sequential fold needs the teacher ``data``."""
    how = {"mode": "sequential" if data else "oneshot"}
    settings = {
        "fold": asdict(FoldOptions()) | how | options, "save": {"widths": widths, "shard": "5GB"},
        "illuminate": asdict(IlluminateOptions()), "dtype": "float32", "device": "cpu", "stream": STREAM,
    }  # fmt: skip
    inputs = {"weights": source, "grams": grams, "plan": planned, "answers": data}
    Fold().run(job(out, inputs, settings))
    return out / "weights", json.loads((out / "folding").read_text())["layers"]


def quant(weights, out, codec, notices=None):
    """The encoded weights, and the stage's facts."""
    facts = Quant().run(job(out, {"weights": weights}, {"codec": codec, "save.shard": "5GB"}, notices))
    return out / "weights", facts
