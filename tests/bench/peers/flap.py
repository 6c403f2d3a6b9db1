"""FLAP: An et al., Fluctuation-based Adaptive Structured Pruning for LLMs (arXiv 2312.11983).

Metric WIFV, the variance of a read-out's input feature times the squared norm of its column; structure AL,
standardized by layer and compared across layers; the means of what is cut become the read-out's bias. Of FFN
neurons alone. The variance is that of all calibration tokens, where the published code updates it sample by
sample.
"""

import torch

from .common import Moments, Walk, cut, frozen


def flap(model, batches, neurons):
    layers, walk = model.model.layers, Walk(model, batches)
    found = []
    for layer in layers:
        found.append(Moments())
        walk.states = walk.through(layer, layer.mlp.down_proj, found[-1].add)
    readouts = [layer.mlp.down_proj.weight.double() for layer in layers]
    scores = torch.stack([m.variance * w.square().sum(0) for m, w in zip(found, readouts, strict=True)])
    scores = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True)
    kept = torch.zeros(scores.numel(), dtype=torch.bool)
    kept[scores.flatten().topk(neurons * len(layers)).indices] = True
    for layer, keep, moments, weight in zip(layers, kept.view_as(scores), found, readouts, strict=True):
        cut(layer.mlp, keep.nonzero().flatten())
        layer.mlp.down_proj.bias = frozen((weight[:, ~keep] @ moments.mean[~keep]).float())
