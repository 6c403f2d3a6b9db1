"""What one narrowed layer costs: second order and measured, each against a whole model."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import answers, gram_file, illuminate

from prune.data.calibration import texts
from prune.nn import sensitivity
from prune.nn.fisher import fisher_costs
from prune.nn.model import LazyModel, load
from prune.nn.sensitivity import sensitivity_costs
from prune.parts import Workbench
from prune.tiny import WIDTH, tiny

torch.set_num_threads(1)
STOPS = [[48, 96, 144, WIDTH]] * 2


@pytest.fixture
def bench(tmp_path):
    source, data = tiny(tmp_path / "m"), answers(tmp_path / "a", train=(60, 90, 31) * 3)
    grams, _ = illuminate(source, data, tmp_path / "i")
    train, val = texts(data, {"window": 2048, "tokens": 0}, WIDTH, "generated")
    (tmp_path / "k").mkdir()
    return Workbench(
        model=LazyModel(source), train=train, val=val, window=2048, grams=grams,
        step=16, seed=0, budget=10**9,
        scratch=tmp_path, kept=tmp_path / "k", progress=lambda *_, **__: None, notice=print,
    )  # fmt: skip


def folded_kl(bench, layer, keep, ridge):
    """KL to the source when one layer alone is folded, by plain passes of whole models."""
    site = bench.model.sites[layer]
    dense, cut = load(bench.model.folder), load(bench.model.folder)
    sigma = load_file(gram_file(bench.grams, layer))["train"].double()
    readout = cut.get_submodule(site.read_out)
    weight = readout.weight.detach().double()
    drop = [j for j in range(WIDTH) if j not in set(keep.tolist())]
    kept = sigma[keep][:, keep]
    ridged = kept + ridge * kept.diagonal().mean() * torch.eye(len(keep))
    new = torch.zeros_like(weight)
    new[:, keep] = weight[:, keep] + weight[:, drop] @ torch.linalg.solve(ridged, sigma[keep][:, drop]).T
    readout.weight.data = new.float()
    total = count = 0
    for text in bench.val:
        with torch.no_grad():
            p, q = (m(input_ids=torch.tensor([text.ids])).logits[0].log_softmax(-1) for m in (dense, cut))
        span = slice(text.start - 1, text.stop - 1)
        total += float((p.exp() * (p - q)).sum(-1)[span].sum())
        count += text.stop - text.start
    return total / count


def test_sensitivity_is_the_measured_divergence(bench):
    orders = [torch.randperm(WIDTH, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    costs = sensitivity_costs(bench, orders, STOPS, [0.5], 10**6, 0.1)
    for layer in range(2):
        want = {w: folded_kl(bench, layer, orders[layer][:w].sort().values, 0.1) for w in (48, 96)}
        assert costs[layer][0] == pytest.approx(max(want.values()), rel=1e-3)
        assert costs[layer][1] == pytest.approx(want[96], rel=1e-3)
        assert costs[layer][2] == pytest.approx(want[96] * (WIDTH - 144) / (WIDTH - 96), rel=1e-3)
        assert costs[layer][3] == 0


def test_sensitivity_goes_on_from_what_it_measured(bench, monkeypatch):
    orders = [torch.arange(WIDTH)] * 2
    want = sensitivity_costs(bench, orders, STOPS, [0.5], 10**6, 0.1)
    log = bench.kept / "sensitivity.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    log.write_text("".join(lines[:2]) + lines[2][:9])  # killed while it wrote the third
    calls = []
    real = sensitivity._one
    monkeypatch.setattr(sensitivity, "_one", lambda *given: calls.append(1) or real(*given))
    assert sensitivity_costs(bench, orders, STOPS, [0.5], 10**6, 0.1) == want
    assert len(calls) == 2 and log.read_text() == "".join(lines)
    assert sensitivity_costs(bench, orders, STOPS, [0.5], 10**6, 0.1) == want and len(calls) == 2


def test_fisher_is_the_second_order_of_the_divergence(bench):
    """For a slight change, ½ tr(M R Σ Rᵀ) comes near to what is measured: it drops what positions share."""
    orders = [torch.randperm(WIDTH, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    many = replace(bench, train=[*bench.train] * 8, val=bench.train)  # more draws of the tokens
    costs = fisher_costs(many, orders, STOPS, 10**6)
    for layer in range(2):
        measured = folded_kl(many, layer, orders[layer][:144].sort().values, 1e-6)
        assert costs[layer][2] == pytest.approx(measured, rel=0.5)
        assert costs[layer] == sorted(costs[layer], reverse=True) and costs[layer][-1] == 0
    assert fisher_costs(many, orders, STOPS, 10**6) == costs
