"""Gates on FFN neurons, trained with the task's loss while the weights stand still.

A gate σ(m_j) multiplies neuron j's input to the read-out, in every layer. The loss is the task's NLL plus
λ · mean over layers of mean_j σ(m_j); what the task can do without is closed. Gates are float32 throughout:
half-precision operands choose other neurons.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from prune.parts import Workbench

from .backward import Backward
from .model import LazyModel
from .nll import mean, score
from .windows import batched, first, targets

OPEN = 2.0  #: the first logit: an identity start (gates at 1) could not learn, its gradient is σ(1 − σ) = 0


@contextmanager
def gated(model: LazyModel, gate: Callable[[int], Tensor]) -> Iterator[None]:
    """Within, the read-out input of layer i is multiplied by ``gate(i)``, float32 [F]."""

    def hook(layer: int) -> Callable[..., tuple[Tensor]]:
        return lambda _, args: ((args[0].float() * gate(layer)).to(args[0].dtype),)

    handles = [
        model.model.get_submodule(s.read_out).register_forward_pre_hook(hook(s.layer)) for s in model.sites
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Schedule:
    """How long, how fast, and how hard the gates are pressed."""

    steps: int
    tokens: int  #: a step
    rate: float
    l1: float  #: λ at first
    l1_rise: float  #: added every ``every`` steps while more than the target is open
    every: int  #: steps between two looks at the hard mask
    val_tokens: int


@dataclass
class _State:
    """All that a run after an interruption goes on from."""

    logits: list[Tensor]
    moments: list[Tensor]  #: Adam's first, then its second, a pair a layer
    best: list[Tensor]
    step: int = 0
    l1: float = 0.0
    best_nll: float = float("inf")
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def fresh(cls, bench: Workbench, l1: float) -> _State:
        widths = [s.width for s in bench.model.sites]
        protected = [r.protected for r in bench.rooms] or [False] * len(widths)
        starts = [math.inf if p else OPEN for p in protected]  # gates at 1 exactly, which have no gradient
        logits = [torch.full((w,), start) for w, start in zip(widths, starts, strict=True)]
        zeros = [torch.zeros(w) for w in widths for _ in range(2)]
        return cls(logits, zeros, [m.clone() for m in logits], l1=l1)

    def save(self, path: Path) -> None:
        """Both halves in one file, renamed into place."""
        groups = {"logits": self.logits, "moments": self.moments, "best": self.best}
        tensors = {f"{g}.{i:04d}": t.detach() for g, ts in groups.items() for i, t in enumerate(ts)}
        rest = {"step": self.step, "l1": self.l1, "best_nll": self.best_nll, "history": self.history}
        part = path.with_suffix(".part")
        save_file(tensors | {"rest": torch.tensor(list(json.dumps(rest).encode()), dtype=torch.uint8)}, part)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> _State:
        tensors = load_file(path)
        rest: dict[str, Any] = json.loads(bytes(tensors.pop("rest").tolist()))

        def group(name: str) -> list[Tensor]:
            return [t for key, t in sorted(tensors.items()) if key.startswith(f"{name}.")]

        return cls(group("logits"), group("moments"), group("best"), **rest)


Hard = Callable[[Sequence[Tensor]], Sequence[Tensor]]  #: logits -> masks of 0 and 1, float32 [F] a layer


def train_gates(
    bench: Workbench, schedule: Schedule, share: float, hard: Hard | None
) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """The best logits on val, float32 [F] a layer, and the curve of the training.

    FLOPs: 6·P a token of a step, 2·P a token of each look at val.

    :param share: of all neurons, to stay open: λ rises no further below it.
    :param hard: what is scored on val; None scores the gates as they are.
    """
    path = bench.kept / "gates.safetensors"
    state = _State.load(path) if path.is_file() else _State.fresh(bench, schedule.l1)
    for logits in state.logits:
        logits.requires_grad_()
    batches = batched(bench.train, bench.window, schedule.tokens)
    losses: list[float] = []
    while state.step < schedule.steps:
        losses.append(_step(bench, state, batches, schedule))
        state.step += 1
        bench.progress(state.step, schedule.steps, nll=losses[-1], kept=_open_share(state.logits))
        if state.step % schedule.every == 0 or state.step == schedule.steps:
            _look(bench, state, schedule, share, hard, sum(losses) / len(losses))
            losses.clear()
            state.save(path)
    return state.best, state.history


def _step(bench: Workbench, state: _State, batches: Sequence[Any], schedule: Schedule) -> float:
    """One batch forward and back, one step of Adam; the batch's NLL a token."""
    epoch, place = divmod(state.step, len(batches))
    order = random.Random(f"{bench.seed}/{epoch}").sample(range(len(batches)), len(batches))
    batch = batches[order[place]]
    count = max(1, int(targets(batch, bench.train).sum()))
    back = Backward(bench.model, [batch], bench.train, budget=bench.budget, scratch=bench.scratch)

    def loss(logits: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits.float(), wanted, reduction="sum") / count

    with gated(bench.model, lambda i: state.logits[i].sigmoid().to(bench.model.device)):
        nll, _ = back.run(loss)
    back.close()
    pressure = torch.stack([m.sigmoid().mean() for m in state.logits]).mean()
    torch.autograd.backward(state.l1 * pressure)
    nn.utils.clip_grad_norm_(state.logits, 1.0)
    _adam(state, schedule.rate)
    return nll


def _adam(state: _State, rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
    """Kingma & Ba 2015, algorithm 1, on every layer's logits; their gradients are used up."""
    t = state.step + 1
    with torch.no_grad():
        for i, logits in enumerate(state.logits):
            first_moment, second_moment = state.moments[2 * i : 2 * i + 2]
            assert logits.grad is not None
            first_moment.lerp_(logits.grad, 1 - betas[0])
            second_moment.lerp_(logits.grad.square(), 1 - betas[1])
            scale = (second_moment / (1 - betas[1] ** t)).sqrt_().add_(eps)
            logits -= rate * (first_moment / (1 - betas[0] ** t)) / scale
            logits.grad = None


def _look(
    bench: Workbench, state: _State, schedule: Schedule, share: float, hard: Hard | None, train_nll: float
) -> None:
    """Score the mask on val, keep the best, press harder where too much is open."""
    with torch.no_grad():
        gates = hard(state.logits) if hard else [m.sigmoid() for m in state.logits]
        texts = first(bench.val, schedule.val_tokens)
        with gated(bench.model, lambda i: gates[i].to(bench.model.device)):
            val = mean(
                score(bench.model, texts, window=bench.window, budget=bench.budget, scratch=bench.scratch)
            )
    if val < state.best_nll:
        state.best_nll, state.best = val, [m.detach().clone() for m in state.logits]
    kept = _open_share(state.logits)
    row: Mapping[str, Any] = {
        "step": state.step,
        "nll": train_nll,
        "val_nll": val,
        "l1": state.l1,
        "kept": kept,
    }
    state.history.append(dict(row))
    if kept > share:
        state.l1 += schedule.l1_rise


def _open_share(logits: Sequence[Tensor]) -> float:
    """How much is open, of all neurons."""
    return float(torch.cat([m.detach().sigmoid() for m in logits]).mean())
