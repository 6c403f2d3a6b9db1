"""Gradients by the walk: forward keeping every layer's input, then back, recomputing a layer at a time.

The weights are frozen; what a gradient is wanted of (a read-out's output, a gate) hooks into the layers. One
layer and one batch of it have a graph at a time: memory is that of the walk and the inputs of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from .model import LazyModel
from .nll import predictors
from .states import States
from .walk import Stream
from .windows import Batch, Text, targets

Around = Callable[[int], AbstractContextManager[object]]  #: of a layer: entered around each of its calls
Loss = Callable[[Tensor, Tensor], Tensor]  #: (logits [n, V], the tokens they predict [n]) -> a scalar, summed


class Backward:
    """One forward and backward pass of a loss over the counted tokens of some batches.

    FLOPs for n tokens: 6·P·n with frozen weights (forward, forward again, gradient of the activations).

    :param texts: what the batches are windows of, with the counted spans.
    :param around: hooks of a layer that both of its passes need.
    :param heard: hears (layers done, of how many), both ways counted.
    :param budget: bytes of hidden states kept in memory; more goes to files in ``scratch``.
    """

    def __init__(
        self,
        model: LazyModel,
        batches: Sequence[Batch],
        texts: Sequence[Text],
        *,
        budget: int,
        scratch: Path,
        around: Around = lambda _: nullcontext(),
        heard: Callable[[int, int], object] = lambda *_: None,
    ) -> None:
        self.model, self.texts, self.around, self.heard = model, texts, around, heard
        self.stream = Stream(model, batches, budget, scratch)
        shapes = [torch.Size((*b.ids.shape, model.sites[0].hidden)) for b in batches]
        every = shapes * len(model.layers)
        self._inputs = States(every, model.dtype, model.device, budget, scratch)

    def run(self, loss: Loss) -> tuple[float, int]:
        """The loss summed over the counted tokens, and their number; gradients reach what the hooks watch."""
        count, layers = len(self.stream.batches), len(self.model.layers)
        for i, _ in self.stream.layers():
            for b in range(count):
                self._inputs[i * count + b] = self.stream.states[b]
                with self.around(i):
                    self.stream.push(i, b)
            self.heard(i + 1, 2 * layers)
        total, tokens = self._top(loss)
        for i in reversed(range(layers)):
            with self.model.loaded(self.model.layer_names(i)):
                for b in range(count):
                    self._back(i, b, self._inputs[i * count + b])
            self.heard(2 * layers - i, 2 * layers)
        return total, tokens

    def close(self) -> None:
        """Give the hidden states back."""
        self.stream.close()
        self._inputs.close()

    def _top(self, loss: Loss) -> tuple[float, int]:
        """The loss; each final hidden state is replaced by its gradient."""
        total, tokens = 0.0, 0
        with self.model.loaded(self.model.outside):
            for b, batch in enumerate(self.stream.batches):
                gradient = torch.zeros_like(self.stream.states[b])
                for rows, wanted in predictors(self.stream, b, targets(batch, self.texts)):
                    hidden = self.stream.states[b][rows].requires_grad_()
                    with torch.enable_grad():
                        found = loss(self.stream.head(hidden), wanted)
                    (gradient[rows],) = torch.autograd.grad(found, hidden)
                    total, tokens = total + float(found.detach()), tokens + len(wanted)
                self.stream.states[b] = gradient
        return total, tokens

    def _back(self, layer: int, batch: int, inputs: Tensor) -> None:
        """From the gradient behind a layer to the one before it."""
        inputs = inputs.clone().requires_grad_()
        with torch.enable_grad(), self.around(layer):
            out = self.stream.apply(layer, batch, inputs)
        torch.autograd.backward(out, self.stream.states[batch])
        assert inputs.grad is not None
        self.stream.states[batch] = inputs.grad


@contextmanager
def captured(model: LazyModel, layer: int, hear: Callable[[Tensor], None]) -> Iterator[None]:
    """Within, ``hear`` gets the gradient at the output of a layer's read-out, [B, T, D], per batch."""
    readout = model.model.get_submodule(model.sites[layer].read_out)

    def watch(_: object, __: object, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(hear)  # type: ignore[no-untyped-call]

    handle = readout.register_forward_hook(watch)
    try:
        yield
    finally:
        handle.remove()
