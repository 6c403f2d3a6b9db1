"""Reads a folder of safetensors, a few tensors at a time; never a pickle, never outside the folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from prune.errors import UsageError, first_line

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

#: safetensors dtype name -> torch dtype
TORCH_DTYPE = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAME_OF = {v: k for k, v in TORCH_DTYPE.items()}


@dataclass(frozen=True)
class Entry:
    """One stored tensor, as its file's header describes it."""

    file: str
    dtype: str  #: safetensors name: "F32", "BF16", "I8" …
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def nbytes(self) -> int:
        return self.numel * TORCH_DTYPE[self.dtype].itemsize


class Checkpoint:
    """The tensors of a model folder by their names on disk.

    :raises UsageError: for a missing, damaged or unsafe file, naming it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def files(self) -> list[str]:
        """Names of the weight files, those of the index where there is one."""
        if (self.folder / INDEX).is_file():
            return sorted(set(self._weight_map().values()))
        if (self.folder / SINGLE).is_file():
            return [SINGLE]
        others = sorted(p.name for p in self.folder.glob("*") if p.suffix in {".bin", ".pt", ".pth"})
        if others:
            raise UsageError(f"{self.folder}: safetensors only, and this holds {others[0]}; convert it first")
        raise UsageError(f"{self.folder}: no {SINGLE} and no {INDEX}")

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every stored tensor, in file order."""
        found: dict[str, Entry] = {}
        for file in self.files:
            for name, entry in self._header(file):
                if name in found:
                    raise UsageError(f"{self.folder}: {name} is in both {found[name].file} and {file}")
                found[name] = entry
        if (self.folder / INDEX).is_file():
            self._compare(found)
        return found

    def load(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The tensors as stored; each file is opened once and closed again, so its pages are given back."""
        by_file: dict[str, list[str]] = {}
        for name in names:
            by_file.setdefault(self.entries[name].file, []).append(name)
        loaded: dict[str, Tensor] = {}
        for file, wanted in by_file.items():
            with safe_open(self.folder / file, framework="pt") as f:
                loaded.update((name, f.get_tensor(name)) for name in wanted)
        return loaded

    def _weight_map(self) -> dict[str, str]:
        index = read_json(self.folder / INDEX)
        files = index.get("weight_map")
        if not isinstance(files, dict) or not files:
            raise UsageError(f"{self.folder / INDEX}: no weight_map")
        for name, file in files.items():
            if (
                not isinstance(file, str)
                or PurePosixPath(file).name != file
                or not file.endswith(".safetensors")
            ):
                raise UsageError(
                    f"{self.folder / INDEX}: {name} names {file!r}, which is no safetensors file here"
                )
            if not (self.folder / file).is_file():
                raise UsageError(f"{self.folder / INDEX}: {file} is missing")
        return files

    def _header(self, file: str) -> Iterable[tuple[str, Entry]]:
        path = self.folder / file
        try:
            with safe_open(path, framework="pt") as f:
                for name in f.keys():  # noqa: SIM118 (safe_open is no dict)
                    view = f.get_slice(name)
                    entry = Entry(file, view.get_dtype(), tuple(view.get_shape()))
                    if entry.dtype not in TORCH_DTYPE:
                        raise UsageError(f"{path}: {name} is stored as {entry.dtype}, which is not supported")
                    yield name, entry
        except (SafetensorError, OSError) as e:
            raise UsageError(f"{path}: {first_line(e)}") from None

    def _compare(self, found: dict[str, Entry]) -> None:
        for name, file in self._weight_map().items():
            if name not in found or found[name].file != file:
                raise UsageError(f"{self.folder / INDEX}: {name} is not in {file}")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    :raises UsageError: where the file is missing, unreadable or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as e:
        raise UsageError(f"{path}: {first_line(e)}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: not a JSON object")
    return value
