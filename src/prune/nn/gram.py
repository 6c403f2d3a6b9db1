"""Gram matrices Σ = E[a aᵀ] of the read-out inputs, gathered by the walk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .layout import Site
from .walk import Stream

BLOCK = 512  # columns of Σ at a time: only the blocks on and above the diagonal are computed


class Gram:
    """Sums a aᵀ over tokens: float32 products a block, float64 sums.

    FLOPs for n tokens: n·F²·(1 + BLOCK/F), about half of a plain GEMM.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        self.tokens = 0
        self._energy = 0.0
        self._sum = torch.zeros((width, width), dtype=torch.float64, device=device)
        self._mean = torch.zeros(width, dtype=torch.float64, device=device)

    def add(self, a: Tensor, output: Tensor) -> None:
        """Count tokens: read-out inputs [n, F] and outputs without bias [n, D], in any float dtype."""
        a = a.float()
        add_outer(self._sum, a)
        self._mean += a.sum(0, dtype=torch.float64)
        self._energy += float(output.float().square().sum(dtype=torch.float64))
        self.tokens += len(a)

    @property
    def energy(self) -> float:
        """Mean squared output ‖W a‖² of a token."""
        return self._energy / max(self.tokens, 1)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Σ float32 [F, F] and the mean of a, float32 [F]; the sums are used up."""
        count = max(self.tokens, 1)
        return mirror(self._sum).div_(count).float(), (self._mean / count).float()


def add_outer(total: Tensor, a: Tensor) -> None:
    """Add aᵀ a of float32 [n, F] to float64 [F, F], in blocks on and above the diagonal only."""
    for start in range(0, a.shape[1], BLOCK):
        rows = a[:, start : start + BLOCK]
        total[start : start + BLOCK, start:] += rows.T @ a[:, start:]


def mirror(total: Tensor) -> Tensor:
    """What :func:`add_outer` summed, its lower half filled in place."""
    for start in range(0, len(total), BLOCK):
        end = start + BLOCK
        block = total[start:end, start:end]
        block.copy_(torch.triu(block) + torch.triu(block, 1).T)
        total[end:, start:end] = total[start:end, end:].T
    return total


def layer_grams(stream: Stream, layer: int, batches: Iterable[int]) -> list[tuple[Site, Gram]]:
    """Push some batches through a loaded layer; gather Σ of its read-outs' inputs over their counted tokens.

    An expert's is over the tokens that it was routed.

    :raises StageError: where an activation is not finite (by the walk's own check).
    """
    model = stream.model
    found = [(site, Gram(site.width, model.device)) for site in model.sites if site.layer == layer]
    for b in batches:
        with ExitStack() as stack:
            calls = [stack.enter_context(calls_of(model.model.get_submodule(s.read_out))) for s, _ in found]
            stream.push(layer, b)
        counted = stream.batches[b].counted.to(model.device)
        for (site, gram), seen in zip(found, calls, strict=True):
            for call in seen:  # none where an expert was routed nothing
                gram.add(*picked(call, _rows(model.model, site, counted)))
    return found


def _rows(model: Any, site: Site, counted: Tensor) -> Tensor:
    """Which rows of a site's last call count, bool; ``counted`` [B, T] is of its layer's input."""
    if site.expert is None:
        return counted
    expert = model.get_submodule(site.read_out.rpartition(".")[0])
    return counted.flatten()[expert.tokens]


def gram_file(folder: Path, layer: int, part: str = "") -> Path:
    """Where a site's Gram matrices lie: ``train`` and ``val`` float32 [F, F], ``mean`` float32 [F]."""
    return folder / f"layer-{layer:03d}{part and '-' + part}.safetensors"


def gram_facts(folder: Path) -> dict[str, Any]:
    """Beside the matrices: tokens of train and val; of each site, tokens seen and their mean output energy.

    ``routed_train`` and ``routed_val`` are written where there are experts: others see every token.
    """
    facts: dict[str, Any] = json.loads((folder / "grams.json").read_text())
    for part in ("train", "val"):
        facts.setdefault(f"routed_{part}", [facts[f"tokens_{part}"]] * len(facts[f"energy_{part}"]))
    return facts


def energies(facts: Mapping[str, Any]) -> list[float]:
    """Output energy of each site, a train token of all: an expert gives none to those it is not routed."""
    tokens = max(1, facts["tokens_train"])
    return [e * (n / tokens) for e, n in zip(facts["energy_train"], facts["routed_train"], strict=True)]


def picked(tensors: Iterable[Tensor], rows: Tensor) -> Iterator[Tensor]:
    """The rows [n, …] of tensors [B, T, …] that a mask [B, T] picks; some families flatten B and T to one."""
    return (t.flatten(0, -2)[rows.flatten()] for t in tensors)


@contextmanager
def calls_of(readout: Any) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Input a and output W a, without bias, of every call of a read-out while the context lasts."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        # a copy in both cases: some layers add to the output in place
        seen.append((args[0], output.clone() if module.bias is None else output - module.bias))

    handle = readout.register_forward_hook(keep)
    try:
        yield seen
    finally:
        handle.remove()
