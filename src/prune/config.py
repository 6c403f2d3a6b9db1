"""The schema of a run, where its YAML lives, and what is wrong with a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from . import ranges
from .errors import UsageError, hint
from .options import (
    BakeOptions,
    EvalOptions,
    FoldOptions,
    IlluminateOptions,
    PlanOptions,
    SaveOptions,
    StreamOptions,
    TargetOptions,
)


@dataclass
class RunConfig:
    source: str | None = None  # a model folder, a hub id, a .gguf file, or package://name/file
    data: str | None = None  # a .jsonl of prompts, or a folder of finalized teacher data
    output: str | None = None  # the folder to make
    ffn: float | None = None  # target: fraction of all FFN neurons (0.75), or mean width (12288)
    size: str | None = None  # target: parameters of the output (12B, 900M)
    ratio: float | None = None  # target: fraction of the source's parameters
    target: TargetOptions = field(default_factory=TargetOptions)
    selector: Any = MISSING  # which FFN neurons are worth keeping
    allocator: Any = MISSING  # how wide each layer stays
    heal: Any = MISSING  # what the narrowed model is trained toward
    codec: Any = MISSING  # how a weight matrix is stored
    teacher: Any = MISSING  # who answers the prompts
    illuminate: IlluminateOptions = field(default_factory=IlluminateOptions)
    bake: BakeOptions = field(default_factory=BakeOptions)
    plan: PlanOptions = field(default_factory=PlanOptions)
    fold: FoldOptions = field(default_factory=FoldOptions)
    save: SaveOptions = field(default_factory=SaveOptions)
    stream: StreamOptions = field(default_factory=StreamOptions)
    eval: EvalOptions = field(default_factory=EvalOptions)
    loss_on: str = "generated"  # answer, generated (reasoning and answer), all
    stages: list[str] = field(default_factory=list)  # in the order of the run; a recipe sets it
    until: str | None = None  # stop after this stage
    redo: str | None = None  # recompute from this stage on
    fresh: bool = False  # recompute every stage; the teacher's answers stay
    plan_only: bool = False  # architecture, widths and parameters by arithmetic, then stop
    check: bool = False  # every preflight finding and one decoded sample, then stop
    overwrite: bool = False  # replace an existing output
    write_on_fail: bool = False  # keep a model that a gate refused, as OUTPUT.rejected
    allow_lossy_source: bool = False  # accept a source of 4 bits or less
    threads: int = 0  # CPU threads of a stage; 0 = as many as torch sees fit
    seed: int = 0  # of everything drawn at random
    device: str = "cpu"  # cpu, cuda, auto (cuda where there is one)
    dtype: str = "auto"  # of the forward passes: auto, bf16, fp32, fp16
    cache: str = ".prune"  # folder of finished stages, shared by runs
    isolate: bool = True  # each stage in a process of its own


TARGETS = ("ffn", "size", "ratio", "target.max_nll_rise")


def conf_path() -> str:
    """``conf/`` of the checkout this runs from, else of the installed wheel."""
    checkout = Path(__file__).parents[2] / "conf"
    if (checkout / "config.yaml").is_file():
        return str(checkout)
    assert (files("prune") / "conf" / "config.yaml").is_file(), "prune was built without conf/"
    return "pkg://prune.conf"


def check(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain dicts, with every interpolation resolved.

    :raises UsageError: with all that is missing, unknown or contradictory, in one line.
    """
    faults = [*_unknown(cfg), *_missing(cfg)]
    if not faults:
        faults = [*_targets(cfg), *_named_stages(cfg), *ranges.faults(cfg)]
    if faults:
        raise UsageError("; ".join(faults))
    plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(k): v for k, v in plain.items()}


def _unknown(cfg: DictConfig) -> Iterator[str]:
    """Hydra takes ``+typo=1`` in silence."""
    names = [f.name for f in fields(RunConfig)]
    for key in sorted(set(map(str, cfg)) - set(names)):
        yield f"unknown option {key!r}{hint(key, names)}"


def _missing(cfg: DictConfig) -> Iterator[str]:
    meaning = {
        "source": "a model folder, hub id or .gguf file",
        "data": "a .jsonl of prompts",
        "output": "a folder",
    }
    wanted = {"source": True, "data": not cfg.plan_only, "output": publishes(cfg)}
    for key, needed in wanted.items():
        if needed and not cfg[key]:
            yield f"missing {key}=… ({meaning[key]})"
    for key in sorted(OmegaConf.missing_keys(cfg)):
        yield f"missing {key}=…"


def _targets(cfg: DictConfig) -> Iterator[str]:
    given = [f"{t}={value}" for t in TARGETS if (value := OmegaConf.select(cfg, t)) is not None]
    if len(given) > 1:
        drop = given[0].split("=")[0]
        yield f"give only one of {', '.join(TARGETS)}: {' and '.join(given)} are set ({drop}=null drops one)"
    elif not given and "plan" in cfg.stages:
        yield (
            "missing a target: one of ffn=0.75 (fraction of the FFN), size=900M, ratio=0.8, "
            "target.max_nll_rise=5%"
        )
    elif given and "plan" not in cfg.stages:
        yield f"{given[0]}: these stages ({', '.join(cfg.stages)}) narrow nothing"


def _named_stages(cfg: DictConfig) -> Iterator[str]:
    twice = sorted({s for s in cfg.stages if list(cfg.stages).count(s) > 1})
    yield from (f"stages: {s!r} is named twice" for s in twice)
    if not cfg.stages:
        yield "stages: the list is empty"
    for key in ("until", "redo"):
        if cfg[key] is not None and cfg[key] not in cfg.stages:
            yield f"{key}={cfg[key]}: no stage of this run{hint(cfg[key], cfg.stages)}"


def publishes(cfg: Any) -> bool:
    """Whether this run is to leave an output."""
    return not (cfg["until"] or cfg["plan_only"] or cfg["check"])
