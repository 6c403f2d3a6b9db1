"""Wanda-sp: Sun et al., A Simple and Effective Pruning Approach for LLMs (arXiv 2306.11695).

In its structured form, the baseline of FLAP (arXiv 2312.11983): a neuron scores the mean of |W|·‖x‖ over its
column of the read-out; each layer's statistics come from the layers already cut.
"""

from .common import Moments, Walk, cut, largest


def wanda_sp(model, batches, neurons):
    walk = Walk(model, batches)
    for layer in model.model.layers:
        down, moments = layer.mlp.down_proj, Moments()
        walk.through(layer, down, moments.add)
        scores = (down.weight.abs() * moments.squares.sqrt()).mean(0)
        cut(layer.mlp, largest(scores, neurons))
        walk.states = walk.through(layer)
