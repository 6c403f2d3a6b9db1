"""Devices, dtypes and sizes as people write them."""

import pytest
import torch

from prune.arithmetic import parse_bytes
from prune.errors import UsageError
from prune.nn.device import free_memory, pick_device, pick_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


SIZES = {
    "5GB": 5 * 10**9,
    "100KB": 10**5,
    "2048": 2048,
    " 1.5 mb ": 1_500_000,
    "3g": 3 * 10**9,
    "0": 0,
    "2TB": 2 * 10**12,
    "1GiB": 2**30,
    "4 KiB": 4096,
    "7B": 7,
    "2.3GB": 2_300_000_000,
}


@pytest.mark.parametrize(("text", "want"), SIZES.items())
def test_sizes(text, want):
    assert parse_bytes(text) == want


@pytest.mark.parametrize(
    "text", ["", "GB", "-5GB", "5XB", "1,5GB", "5 G B", "nan", "inf", "1e9", "٣GB", "9" * 400, "1.2.3GB"]
)
def test_what_is_no_size(text):
    with pytest.raises(UsageError, match="is no size; give one such as 5GB"):
        parse_bytes(text)


@pytest.mark.parametrize("name", ["gpu", "cpu:x", "", "cudaa"])
def test_an_unknown_device(name):
    with pytest.raises(UsageError, match="give auto, cpu, cuda"):
        pick_device(name)


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device("auto") == pick_device("cpu") == CPU
    with pytest.raises(UsageError, match=r"device=cuda:1.*device=cpu"):
        pick_device("cuda:1")


def test_a_gpu_is_taken_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto").type == "cuda" and pick_device("cuda:1").index == 1
    with pytest.raises(UsageError, match="device=cuda:2: 2 CUDA devices"):
        pick_device("cuda:2")


@pytest.mark.parametrize("name", ["meta", "vulkan"])
def test_a_device_that_cannot_compute_here(name):
    with pytest.raises(UsageError, match=f"device={name}"):
        pick_device(name)


def test_dtypes():
    assert pick_dtype("bf16", CPU) == pick_dtype("bfloat16", CPU) == torch.bfloat16
    assert pick_dtype("fp16", CPU) == torch.float16 and pick_dtype("float32", CUDA) == torch.float32
    assert pick_dtype("auto", CUDA) == torch.bfloat16
    assert pick_dtype("auto", CPU) == torch.float32
    with pytest.raises(UsageError, match="dtype=int8"):
        pick_dtype("int8", CPU)


def test_free_memory_is_a_sane_number():
    assert 1 << 20 < free_memory() <= 1 << 62
