"""LLM-Pruner: Ma et al., LLM-Pruner: On the Structural Pruning of Large Language Models (arXiv 2305.11627).

First-order Taylor importance of a neuron's group, its rows of gate and up and its column of down, from
the gradient of the language-model loss on all calibration tokens: Σ|w·∂L/∂w| by element, or |Σ w·∂L/∂w|
by vector; the group's sum. Every layer is cut to the same width; the finetuning that follows in the
paper is left out.
"""

import torch

from .common import cut, largest

TOKENS = 1024  #: of one backward pass


def element(model, batches, neurons):
    _prune(model, batches, neurons, lambda salience, axis: salience.abs().sum(axis))


def vector(model, batches, neurons):
    _prune(model, batches, neurons, lambda salience, axis: salience.sum(axis).abs())


def _prune(model, batches, neurons, reduce):
    _differentiate(model, batches)
    for layer in model.model.layers:
        mlp = layer.mlp
        parts = ((mlp.gate_proj, 1), (mlp.up_proj, 1), (mlp.down_proj, 0))
        with torch.no_grad():
            scores = sum(reduce(part.weight * part.weight.grad, axis) for part, axis in parts)
        cut(mlp, largest(scores, neurons))


def _differentiate(model, batches):
    """Gradients of the loss summed over the counted tokens; only their proportions matter."""
    model.requires_grad_(False)
    for layer in model.model.layers:
        for linear in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj):
            linear.weight.requires_grad_(True)
    for batch in batches:
        rows = max(1, TOKENS // batch.ids.shape[1])
        for ids, counted in zip(batch.ids.split(rows), batch.counted.split(rows), strict=True):
            wanted = counted[:, 1:]
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1][wanted]
            torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="sum").backward()
