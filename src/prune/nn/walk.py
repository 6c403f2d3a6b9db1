"""The walk: many batches through a model, one decoder layer at a time.

Each layer is loaded once, pushes the hidden states of every batch one layer on, and leaves again. All stages
that run the model use it: a model larger than memory needs no more than its largest layer, its embedding and
the hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prune.errors import StageError

from .model import LazyModel
from .states import States
from .windows import Batch

Call = tuple[tuple[Any, ...], dict[str, Any]]  #: what a layer is called with behind its hidden states


class Stream:
    """The hidden states of ``batches`` on their way through ``model``.

    :param budget: bytes of hidden states kept in memory; more goes to a file in ``scratch``.
    """

    def __init__(self, model: LazyModel, batches: Sequence[Batch], budget: int, scratch: Path) -> None:
        self.model, self.batches = model, batches
        self._calls: dict[torch.Size, list[Call]] = {}  # masks and rotary tables depend on the shape alone
        hidden = model.sites[0].hidden
        shapes = [torch.Size((*b.ids.shape, hidden)) for b in batches]
        self.states = States(shapes, model.dtype, model.device, budget, scratch)
        with torch.no_grad(), model.loaded(model.outside_but_head):
            for i, batch in enumerate(batches):
                self.states[i] = self._embed(batch.ids)

    def layers(self) -> Iterator[tuple[int, nn.Module]]:
        """Every layer in turn, loaded. The caller hooks into it and calls :meth:`push`."""
        for i, layer in enumerate(self.model.layers):
            with self.model.loaded(self.model.layer_names(i)):
                yield i, layer

    def push(self, layer: int, batch: int) -> None:
        """Take one batch through one loaded layer; its hidden states are replaced."""
        self.states[batch] = self.run(layer, batch)

    def run(self, layer: int, batch: int) -> Tensor:
        """What a loaded layer makes of one batch, [B, T, D].

        :raises StageError: where the result is not finite, naming the layer.
        """
        with torch.inference_mode():
            out = self.apply(layer, batch, self.states[batch])
        if not torch.isfinite(out).all():
            kind = str(self.model.dtype).removeprefix("torch.")
            raise StageError(
                f"layer {layer} of {self.model.folder.name}: the hidden states are not finite in {kind}; "
                "try dtype=float32"
            )
        return out

    def apply(self, layer: int, batch: int, hidden: Tensor) -> Tensor:
        """A loaded layer, called as for ``batch``, on other hidden states [B, T, D]; gradients flow."""
        args, kwargs = self._calls[self.batches[batch].ids.shape][layer]
        result = self.model.layers[layer](hidden, *args, **kwargs)
        out: Tensor = result[0] if isinstance(result, tuple) else result
        return out

    def logits(self, batch: int, rows: Tensor) -> Tensor:
        """Logits [n, V] of the positions that ``rows`` (bool [B, T]) picks; the outside must be loaded."""
        with torch.inference_mode():
            return self.head(self.states[batch][rows])

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] of final hidden states [n, D]; gradients flow.

        The model's own forward, its layers handing on what the walk has: norms, soft caps, scales included.
        """
        one_token = torch.zeros((1, 1), dtype=torch.int64, device=self.model.device)
        with self._forwards(lambda _: lambda *_, **__: hidden.unsqueeze(0)):
            logits: Tensor = self.model.model(input_ids=one_token, use_cache=False).logits
        return logits.reshape(-1, logits.shape[-1])

    def fork(self) -> Stream:
        """The same batches at the same layer, to go another way."""
        other = copy(self)
        other.states = self.states.copy()
        return other

    def close(self) -> None:
        """Give the hidden states back."""
        self.states.close()

    def _embed(self, ids: Tensor) -> Tensor:
        """Hidden states before the first layer; the calls of all layers are recorded for this shape."""
        calls: list[Call] = [((), {})] * len(self.model.layers)
        first: list[Tensor] = []

        def recorder(i: int) -> Callable[..., Tensor]:
            def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
                calls[i] = (args, kwargs)
                first.append(hidden)
                return hidden

            return forward

        with self._forwards(recorder):
            self.model.model.base_model(input_ids=ids.to(self.model.device), use_cache=False)
        self._calls.setdefault(ids.shape, calls)
        return first[0]

    @contextmanager
    def _forwards(self, make: Callable[[int], Callable[..., Tensor]]) -> Iterator[None]:
        """Within, each layer returns what ``make(i)`` does; its attributes stay for the model to read."""
        for i, layer in enumerate(self.model.layers):
            forward = make(i)
            layer.forward = _as_tuple(forward) if self.model.layout.tuples else forward
        try:
            yield
        finally:
            for layer in self.model.layers:
                del layer.forward


def push_all(stream: Stream, done: Callable[[int, int], None] | None = None) -> None:
    """Walk every batch through every layer."""
    count = len(stream.model.layers)
    for i, _ in stream.layers():
        for b in range(len(stream.batches)):
            stream.push(i, b)
        if done:
            done(i + 1, count)


def _as_tuple(forward: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, None]]:
    return lambda *args, **kwargs: (forward(*args, **kwargs), None)
