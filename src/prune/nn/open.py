"""Opens a model folder, and what a part measures on, as a stage's options say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune.arithmetic import parse_bytes
from prune.data.calibration import texts
from prune.parts import Workbench
from prune.stage import Job

from .device import free_memory, pick_device, pick_dtype
from .model import Decode, LazyModel


def open_model(folder: Path, options: Mapping[str, Any], decode: Decode | None = None) -> LazyModel:
    """A lazy model in the options' ``dtype`` on their ``device``; in memory as ``stream.resident`` says.

    :param options: holds ``dtype``, ``device`` and ``stream``.
    """
    device = pick_device(options["device"])
    model = LazyModel(folder, pick_dtype(options["dtype"], device), device, decode)
    if fits(model, options["stream"]["resident"]):
        model.pin()
    return model


def fits(model: LazyModel, resident: str) -> bool:
    """Whether all weights are to stay in memory: asked for, or (``auto``) within 60 % of what is free."""
    return resident == "always" or (resident == "auto" and model.nbytes < 0.6 * free_memory())


def workbench(job: Job, model: LazyModel, **plan: Any) -> Workbench:
    """The calibration texts of a stage's teacher data, beside its model.

    :param plan: what is known of the plan: ``grams``, ``rooms``, ``total``, ``step``, ``same_width``.
    """
    options = job.options["illuminate"]
    train, val = texts(job.inputs["answers"], options, model.widest, job.options["loss_on"])
    return Workbench(
        model=model,
        train=train,
        val=val,
        window=options["window"],
        seed=job.options["seed"],
        budget=parse_bytes(job.options["stream"]["states"]),
        scratch=job.out,
        kept=job.keep,
        progress=job.progress,
        notice=job.notice,
        **plan,
    )
