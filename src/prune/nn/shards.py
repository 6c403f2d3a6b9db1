"""Writes safetensors files whose tensors come one by one, in any order, without holding a shard in memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from prune.errors import StageError

from .checkpoint import INDEX, SINGLE, TORCH_DTYPE

Spec = tuple[str, tuple[int, ...]]  #: safetensors dtype name and shape


def nbytes(spec: Spec) -> int:
    """Bytes of a tensor as stored."""
    return torch.Size(spec[1]).numel() * TORCH_DTYPE[spec[0]].itemsize


class ShardWriter:
    """Lays out all files from the declared tensors, then takes each with :meth:`put`.

    A context manager; leaving it without an error checks that nothing is missing and writes the index.
    """

    def __init__(self, folder: Path, specs: Mapping[str, Spec], shard_bytes: int) -> None:
        self.folder, self.specs = folder, specs
        groups = _split(specs, shard_bytes)
        names = [SINGLE] if len(groups) == 1 else _names(len(groups))
        self._file_of = {name: file for file, group in zip(names, groups, strict=True) for name in group}
        self._place: dict[str, tuple[int, int]] = {}  # name -> (descriptor, offset)
        self._missing = set(specs)
        self._fds = [self._lay_out(file, group) for file, group in zip(names, groups, strict=True)]

    def put(self, name: str, tensor: Tensor) -> None:
        """Write one declared tensor; it is cast to the declared dtype.

        :raises ValueError: for an undeclared or repeated name, or another shape.
        :raises StageError: for a number that is not finite, or not in the declared dtype.
        """
        if name not in self.specs:
            raise ValueError(f"{name}: not declared")
        dtype, shape = self.specs[name]
        if name not in self._missing or tuple(tensor.shape) != shape:
            raise ValueError(f"{name} {tuple(tensor.shape)}: declared {shape}, or written before")
        fd, offset = self._place[name]
        flat = tensor.detach().to("cpu", TORCH_DTYPE[dtype]).contiguous().reshape(-1)
        _require_finite(name, flat)
        _write_all(fd, flat.view(torch.uint8).numpy().data, offset)
        self._missing.remove(name)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._fds:
            os.close(fd)
        if kind is not None:
            return
        if self._missing:
            raise ValueError(
                f"{len(self._missing)} tensors were never written, {sorted(self._missing)[0]} first"
            )
        if len(self._fds) > 1:
            total = sum(nbytes(spec) for spec in self.specs.values())
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(self._file_of.items()))}
            (self.folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")

    def _lay_out(self, file: str, group: list[str]) -> int:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for name in group:
            dtype, shape = self.specs[name]
            end = offset + nbytes((dtype, shape))
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        fd = os.open(self.folder / file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        _write_all(fd, memoryview(len(text).to_bytes(8, "little") + text), 0)
        base = 8 + len(text)
        os.ftruncate(fd, base + offset)
        for name in group:
            start = header[name]["data_offsets"][0]  # type: ignore[index]
            self._place[name] = (fd, base + start)
        return fd


def _require_finite(name: str, flat: Tensor) -> None:
    """The extremes tell, and need no memory of the tensor's size: a NaN is both."""
    if not flat.is_floating_point() or not len(flat):
        return
    if not all(math.isfinite(float(extreme)) for extreme in flat.aminmax()):
        kind = str(flat.dtype).removeprefix("torch.")
        raise StageError(
            f"{name}: a number is not finite, or beyond {kind}; check the source, or use codec=none"
        )


def _split(specs: Mapping[str, Spec], limit: int) -> list[list[str]]:
    """Names by shard; inside one the widest dtypes come first, so that every tensor is aligned."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, spec in specs.items():
        if groups[-1] and size + nbytes(spec) > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += nbytes(spec)
    return [sorted(g, key=lambda n: -TORCH_DTYPE[specs[n][0]].itemsize) for g in groups]


def _names(count: int) -> list[str]:
    return [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
