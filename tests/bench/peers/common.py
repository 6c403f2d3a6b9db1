"""What the peers share: calibration states that move through the model layer by layer, and the cut."""

from contextlib import contextmanager

import torch
from torch import nn


class _Caught(Exception):
    """Ends a forward pass where the first layer begins."""


class Walk:
    """The calibration batches at one layer: hidden states, float32 [B, T, D] each, and its arguments."""

    def __init__(self, model, batches):
        self.counted = [batch.counted for batch in batches]
        self.states, self._arguments = [], []
        hook = model.model.layers[0].register_forward_pre_hook(self._catch, with_kwargs=True)
        for batch in batches:
            with torch.no_grad():
                try:
                    model.model(input_ids=batch.ids, use_cache=False)
                except _Caught:
                    continue
        hook.remove()

    def through(self, layer, module=None, look=None):
        """The states behind a layer; ``look`` gets a module's input at the counted tokens, [n, features]."""
        found = []
        for state, arguments, counted in zip(self.states, self._arguments, self.counted, strict=True):
            with torch.no_grad(), _shown(module, look, counted):
                found.append(layer(state, **arguments))
        return found

    def real(self, states):
        """States at the counted tokens, [n, D] each: none of padding."""
        return [state[counted] for state, counted in zip(states, self.counted, strict=True)]

    def _catch(self, _, states, arguments):
        self.states.append(states[0])
        self._arguments.append(arguments)
        raise _Caught


@contextmanager
def _shown(module, look, counted):
    if module is None:
        yield
        return
    hook = module.register_forward_pre_hook(lambda _, given: look(given[0][counted]))
    yield
    hook.remove()


class Moments:
    """Mean and variance of each feature, float64 [features]."""

    def __init__(self):
        self.count, self._sum, self.squares = 0, 0, 0

    def add(self, x):
        x = x.double()
        self.count += len(x)
        self._sum = self._sum + x.sum(0)
        self.squares = self.squares + x.square().sum(0)

    @property
    def mean(self):
        return self._sum / self.count

    @property
    def variance(self):
        return (self.squares - self.count * self.mean.square()) / (self.count - 1)


def largest(scores, count):
    """The indices of the ``count`` largest, ascending."""
    return scores.topk(count).indices.sort().values


def cut(mlp, keep):
    """Keep these neurons of a gated FFN."""
    for linear in (mlp.gate_proj, mlp.up_proj):
        linear.weight = frozen(linear.weight[keep])
        linear.out_features = len(keep)
        if linear.bias is not None:
            linear.bias = frozen(linear.bias[keep])
    mlp.down_proj.weight = frozen(mlp.down_proj.weight[:, keep])
    mlp.down_proj.in_features = len(keep)


def frozen(tensor):
    return nn.Parameter(tensor.detach().clone(), requires_grad=False)
