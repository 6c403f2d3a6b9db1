"""Where and in which precision to compute, and how much memory there is."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from prune.errors import UsageError

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def pick_device(name: str) -> torch.device:
    """``auto`` is the first GPU, else the CPU.

    :raises UsageError: for a device that this machine has not.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device={name}: give auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device={name}: give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={name}: {torch.cuda.device_count()} CUDA devices are visible; use device=cpu"
        )
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The compute dtype. ``auto``: float32 on a CPU, bfloat16 on a GPU.

    A CPU that multiplies bfloat16 natively would be quicker with it, but the sequential fold solves for small
    differences of residual streams, which its eight bits of mantissa drown, and a float32 model that is
    scored in it can look twice as bad.

    :raises UsageError: for an unknown name.
    """
    if name != "auto":
        if name not in DTYPES:
            raise UsageError(f"dtype={name}: give auto, float32, bfloat16 or float16")
        return DTYPES[name]
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def free_memory() -> int:
    """Bytes of main memory that a new allocation may take without swapping."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else 1 << 62
