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
    """The compute dtype. ``auto``: bfloat16 where the device multiplies it natively, else float32.

    A CPU without AVX512-BF16 or AMX emulates bfloat16 at about an eighth of its float32 speed.

    :raises UsageError: for an unknown name.
    """
    if name != "auto":
        if name not in DTYPES:
            raise UsageError(f"dtype={name}: give auto, float32, bfloat16 or float16")
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16
    return torch.bfloat16 if _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return bool(re.search(r"\b(avx512_bf16|amx_bf16)\b", flags))


def free_memory() -> int:
    """Bytes of main memory that a new allocation may take without swapping."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else 1 << 62
