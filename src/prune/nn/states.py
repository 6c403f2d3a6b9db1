"""The hidden states of many batches, in memory or, past a budget, in a memory-mapped scratch file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor


class States:
    """One tensor [B, T, D] a batch, overwritten as a walk goes on.

    :param shapes: of the batches.
    :param budget: bytes; more than that goes to a file in ``scratch``.
    """

    def __init__(
        self,
        shapes: Sequence[torch.Size],
        dtype: torch.dtype,
        device: torch.device,
        budget: int,
        scratch: Path,
    ) -> None:
        self.device = device
        self._made = shapes, dtype, device, budget, scratch
        self._file: Path | None = None
        total = sum(s.numel() for s in shapes)
        if total * dtype.itemsize > budget:
            fd, name = tempfile.mkstemp(".bin", "states-", scratch)
            os.close(fd)
            self._file = Path(name)
            flat = torch.from_file(str(self._file), shared=True, size=total, dtype=dtype)
        else:
            flat = torch.empty(total, dtype=dtype, device=device)
        parts = torch.split(flat, [s.numel() for s in shapes])
        self._parts = [p.view(s) for p, s in zip(parts, shapes, strict=True)]

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, batch: int) -> Tensor:
        return self._parts[batch].to(self.device)

    def __setitem__(self, batch: int, value: Tensor) -> None:
        self._parts[batch].copy_(value)

    def copy(self) -> States:
        """Another set of the same tensors, under a budget of its own."""
        other = States(*self._made)
        for i, part in enumerate(self._parts):
            other[i] = part
        return other

    def close(self) -> None:
        """Let the memory, or the file, go."""
        self._parts = []
        if self._file is not None:
            self._file.unlink(missing_ok=True)
