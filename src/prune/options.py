"""The nested groups of a run's options; every default carries its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from .gates import GateOptions


@dataclass
class TargetOptions:
    max_nll_rise: str | None = (
        None  # target: the narrowest fold whose val NLL rises by no more (0.05 nats, 5%)
    )


@dataclass
class IlluminateOptions:
    window: int = 2048  # tokens a window; a longer record is cut with half overlap
    tokens: int | None = None  # calibration tokens: null = 20 a neuron of the widest FFN, 0 = all


@dataclass
class BakeOptions:
    steps: int = 60  # of training the gates; six forward passes' FLOPs over the tokens of each
    tokens: int = 1024  # a step
    rate: float = 0.1  # of Adam, on the logits of the gates
    l1: float = 0.001  # slight pressure toward closed gates: none of them need close
    every: int = 15  # steps between two looks at val; the best gates seen there are taken
    val_tokens: int = 4096  # of val, at every look


@dataclass
class PlanOptions:
    protect_first: int = 0  # first layers kept whole: protecting edges cost more than it saved where measured
    protect_last: int = 0  # last layers kept whole
    min_width: float = 0.25  # floor of a layer's width, as a fraction of it
    experts: str = "auto"  # of a mixture; auto: those that the task does not route to leave; keep: all stay
    align: int = 128  # widths are multiples of it, as GEMM tiles and quantization groups want


@dataclass
class FoldOptions:
    mode: str = "sequential"  # toward the source's residual stream; oneshot: own output, a third of the time
    refit: str = "auto"  # auto: plain cut or best ridge, per layer on val; on: best ridge; off: plain cut
    ridge: list[float] = field(
        default_factory=lambda: [0.003, 0.01, 0.03, 0.1]
    )  # ρ, of the mean kept Gram diagonal


@dataclass
class SaveOptions:
    widths: str = "uniform"  # uniform: one width; padded: zeros up to the widest; exact: loads with prune
    shard: str = "5GB"  # largest weight file; more weights are split, with an index


@dataclass
class StreamOptions:
    resident: str = "auto"  # auto: weights stay in memory where they fit; always; never: a layer at a time
    states: str = "2GB"  # hidden states past this go to a memory-mapped file


@dataclass
class EvalOptions:
    prompts: int = 16  # test prompts answered greedily by each candidate; 0 = none, and no gate on them
    max_tokens: int = 384  # longest answer
    general: str | None = None  # plain text or .jsonl with `text`: general perplexity
    general_tokens: int = 16384  # of that text, this many tokens are scored
    compare: list[str] = field(default_factory=list)  # other model folders, scored on the same records
    gates: GateOptions = field(default_factory=GateOptions)  # reasons to refuse the output
