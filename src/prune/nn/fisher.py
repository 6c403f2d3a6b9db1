"""What narrowing one layer costs in KL divergence to the source, to second order, from one backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from safetensors.torch import load_file
from torch import Tensor

from prune.parts import Workbench

from .backward import Backward, captured
from .gram import gram_file
from .refit import residual_curve
from .windows import Text, batched, first


def fisher_costs(
    bench: Workbench, orders: Sequence[Tensor], stops: Sequence[Sequence[int]], tokens: int
) -> list[Sequence[float]]:
    """½ tr(M R Σ Rᵀ) at every stop, nats a counted token.

    R is what the best refit leaves of the read-out, Σ its input's Gram, M = E[g gᵀ] with g the gradient of
    −log p at the read-out's output; p's tokens are drawn from the model itself, so that M is the Fisher
    information, taken as independent of the input (K-FAC, Martens & Grosse 2015, section 3).
    """
    model = bench.model
    metrics = _fisher(bench, first(bench.train, tokens))
    costs: list[Sequence[float]] = []
    for site, order, widths, metric in zip(model.sites, orders, stops, metrics, strict=True):
        gram = load_file(gram_file(bench.grams, site.layer))["train"]
        curve = residual_curve(gram, model.read_out(site), order, metric)
        costs.append([0.5 * max(0.0, float(curve[w])) for w in widths])
    return costs


def _fisher(bench: Workbench, texts: Sequence[Text]) -> list[Tensor]:
    """M of every layer, float64 [D, D]: gradients at all tokens, over the number of counted ones."""
    model = bench.model
    hidden = model.sites[0].hidden
    sums = [torch.zeros(hidden, hidden, dtype=torch.float64, device=model.device) for _ in model.sites]
    generator = torch.Generator(model.device).manual_seed(bench.seed)

    @contextmanager
    def around(layer: int) -> Iterator[None]:
        def add(gradient: Tensor) -> None:
            flat = gradient.flatten(0, -2).float()
            sums[layer] += flat.T @ flat

        with captured(model, layer, add):
            yield

    def loss(logits: Tensor, _: Tensor) -> Tensor:
        logits = logits.float()
        drawn = torch.multinomial(logits.detach().softmax(-1), 1, generator=generator).squeeze(1)
        return torch.nn.functional.cross_entropy(logits, drawn, reduction="sum")

    batches = batched(texts, bench.window, 4096)
    back = Backward(
        model, batches, texts, budget=bench.budget, scratch=bench.scratch, around=around, heard=bench.progress
    )
    _, counted = back.run(loss)
    back.close()
    return [total / max(1, counted) for total in sums]
