"""Hidden states in memory and in a file are the same thing."""

import pytest
import torch

from prune.nn.states import States

SHAPES = [torch.Size(s) for s in ((2, 3, 4), (1, 5, 4), (3, 1, 4))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_what_goes_in_comes_out(tmp_path, dtype, budget):
    states = States(SHAPES, dtype, torch.device("cpu"), budget, tmp_path)
    values = [
        torch.randn(s, generator=torch.Generator().manual_seed(i)).to(dtype) for i, s in enumerate(SHAPES)
    ]
    for i in (2, 0, 1):
        states[i] = values[i]
    assert len(states) == 3 and all(torch.equal(states[i], v) for i, v in enumerate(values))
    states[1] = values[1] * 2
    assert torch.equal(states[1], values[1] * 2) and torch.equal(states[0], values[0])
    assert torch.equal(states[2], values[2])


def test_the_budget_decides_where_they_live(tmp_path):
    need = sum(s.numel() for s in SHAPES) * 4
    States(SHAPES, torch.float32, torch.device("cpu"), need, tmp_path)
    assert not list(tmp_path.iterdir())
    two = [States(SHAPES, torch.float32, torch.device("cpu"), need - 1, tmp_path) for _ in range(2)]
    assert [p.stat().st_size for p in tmp_path.iterdir()] == [need, need]
    for states in two:
        states.close()
    assert not list(tmp_path.iterdir()) and len(two[0]) == 0
