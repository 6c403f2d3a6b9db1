"""The gates of dtgma: gradients against plain autograd, determinism, resume, what the mask does."""

import itertools
import json
import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import IMPORTANCE, answers, illuminate, plan

from prune.allocation import by_margin
from prune.nn import gates
from prune.nn.gates import Schedule, train_gates
from prune.nn.model import load
from prune.parts import Room
from prune.testing import tiny_bench
from prune.tiny import WIDTH, tiny

torch.set_num_threads(1)
SCHEDULE = Schedule(steps=6, tokens=64, rate=0.1, l1=0.01, l1_rise=0.005, every=2, val_tokens=100)
DTGMA = {"_target_": "prune_plugins.selector.dtgma.Dtgma", "steps": 12, "tokens": 100, "rate": 0.1, "l1": 0.5,
         "l1_rise": 0.1, "every": 4, "val_tokens": 200}  # fmt: skip


@pytest.fixture
def bench(tmp_path):
    return tiny_bench(tmp_path)


def twin(bench, steps):
    """The same training on the whole model at once, by plain autograd and torch's Adam."""
    from prune.nn.windows import batched

    model, sites = load(bench.model.folder), bench.model.sites
    logits = [torch.full((WIDTH,), 2.0, requires_grad=True) for _ in sites]
    for i, site in enumerate(sites):
        model.get_submodule(site.read_out).register_forward_pre_hook(
            lambda _, args, i=i: (args[0] * logits[i].sigmoid(),)
        )
    optimizer = torch.optim.Adam(logits, lr=SCHEDULE.rate)
    batches = batched(bench.train, bench.window, SCHEDULE.tokens)
    for step in range(steps):
        epoch, place = divmod(step, len(batches))
        batch = batches[random.Random(f"0/{epoch}").sample(range(len(batches)), len(batches))[place]]
        loss = count = 0
        for window in batch.windows:
            text = bench.train[window.record]
            out = model(input_ids=torch.tensor([window.ids])).logits[0, text.start - 1 : text.stop - 1]
            wanted = torch.tensor(text.ids[text.start : text.stop])
            loss = loss + torch.nn.functional.cross_entropy(out, wanted, reduction="sum")
            count += len(wanted)
        pressure = torch.stack([m.sigmoid().mean() for m in logits]).mean()
        optimizer.zero_grad()
        (loss / count + SCHEDULE.l1 * pressure).backward()
        torch.nn.utils.clip_grad_norm_(logits, 1.0)
        optimizer.step()
    return [m.detach() for m in logits]


def test_it_is_plain_autograd(bench):
    schedule = replace(SCHEDULE, l1_rise=0.0, every=5, steps=5)
    found, history = train_gates(bench, schedule, 0.5, None)
    for ours, want in zip(found, twin(bench, 5), strict=True):
        assert torch.allclose(ours, want, atol=2e-3) and (want - 2).abs().max() > 0.1
    assert [row["step"] for row in history] == [5] and history[0]["l1"] == SCHEDULE.l1


def test_two_runs_agree_and_a_stopped_one_goes_on(tmp_path, bench, monkeypatch):
    whole = train_gates(bench, SCHEDULE, 0.5, None)
    other = replace(bench, kept=tmp_path / "other")
    other.kept.mkdir()
    real, seen = gates._step, []

    def stops(*given):
        seen.append(1)
        if len(seen) == 4:  # in the step behind a look
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(gates, "_step", stops)
    with pytest.raises(KeyboardInterrupt):
        train_gates(other, SCHEDULE, 0.5, None)
    again = train_gates(other, SCHEDULE, 0.5, None)
    assert all(torch.equal(a, b) for a, b in zip(whole[0], again[0], strict=True)) and whole[1] == again[1]
    assert len(seen) == 4 + 4


def test_a_protected_layer_has_no_gates(bench):
    rooms = [replace(bench.rooms[0], protected=True), bench.rooms[1]]
    found, history = train_gates(replace(bench, rooms=rooms), SCHEDULE, 0.5, None)
    assert found[0].isinf().all() and found[1].isfinite().all() and not (found[1] == 2.0).any()
    shut = load_file(bench.kept / "gates.safetensors")["logits.0001"].sigmoid().mean()
    assert history[-1]["kept"] == pytest.approx((1 + float(shut)) / 2, abs=1e-6)


def test_the_plan_takes_which_and_how_many_from_the_gates(tmp_path):
    source, data = tiny(tmp_path / "m"), answers(tmp_path / "a", train=(90,) * 4, val=(60,) * 2)
    grams, _ = illuminate(source, data, tmp_path / "i")
    planned, found = plan(
        source, grams, tmp_path / "p", data=data, ffn=128 / WIDTH, selector=DTGMA, widths="exact"
    )
    assert [row["step"] for row in found["learning"]] == [4, 8, 12]
    assert found["totals"]["shared_by"] == "selector dtgma" and found["totals"]["neurons_after"] == 256
    best = load_file(tmp_path / "p" / "gates.safetensors")
    for layer, kept in load_file(planned / "keep.safetensors").items():
        logits = best[f"best.{int(layer):04d}"]
        left = sorted(set(range(WIDTH)) - set(kept.tolist()))
        assert logits[kept].min() >= logits[left].max()
    same, _ = plan(source, grams, tmp_path / "s", data=data, ffn=128 / WIDTH, selector=DTGMA)
    rows = json.loads((same / "plan.json").read_text())["layers"]
    assert [row["kept"] for row in rows] == [128, 128]
    assert (
        plan(source, grams, tmp_path / "i2", ffn=128 / WIDTH, selector=IMPORTANCE)[1].get("learning") is None
    )


def test_one_threshold_rounded_to_steps():
    rooms = [Room(64, 16, False), Room(64, 16, False), Room(64, 16, True)]
    values = [
        [float(64 - i) for i in range(64)],  # 64 … 1
        [float(32 - i) for i in range(64)],  # 32 … −31
        [0.0] * 64,
    ]
    assert by_margin(rooms, values, 192, 16) == [64, 64, 64]
    assert by_margin(rooms, values, 160, 16) == [64, 32, 64]
    assert by_margin(rooms, values, 159, 16) == [48, 32, 64]
    for total in range(96, 193):
        widths = by_margin(rooms, values, total, 16)
        assert total - 16 < sum(widths) <= total and widths[2] == 64
        assert all(w % 16 == 0 and 16 <= w <= 64 for w in widths)
    with pytest.raises(ValueError, match="floors"):
        by_margin(rooms, values, 95, 16)


def test_one_threshold_is_the_best_of_all_widths():
    """Where stops are equal, no other widths hold so much of what the gates leave open."""
    rooms, draw = [Room(64, 16, False)] * 4, random.Random(0)
    ladder = range(16, 65, 16)
    for total in range(64, 257, 24):
        values = [sorted((draw.random() for _ in range(64)), reverse=True) for _ in rooms]
        held = {
            widths: sum(values[i][below] for i, w in enumerate(widths) for below in range(16, w, 16))
            for widths in itertools.product(ladder, repeat=4)
            if sum(widths) <= total
        }
        assert tuple(by_margin(rooms, values, total, 16)) == max(held, key=lambda w: held[w])
