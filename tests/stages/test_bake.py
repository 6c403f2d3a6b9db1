"""bake: the folder computes what the gated model does, or is left alone."""

from dataclasses import asdict

import pytest
import torch
from product import tensors
from stage_jobs import STREAM, answers, job

from prune.nn import gates
from prune.nn.model import LazyModel, load
from prune.options import BakeOptions, IlluminateOptions
from prune.stages.bake import Bake
from prune.tiny import WIDTH, tiny

torch.set_num_threads(1)


def baked(source, data, out, notices=None):
    options = {
        "bake": asdict(BakeOptions()) | {"steps": 2, "tokens": 64, "every": 1}, "save.shard": "5GB",
        "seed": 0, "illuminate": asdict(IlluminateOptions()), "loss_on": "generated", "dtype": "float32",
        "device": "cpu", "stream": STREAM,
    }  # fmt: skip
    facts = Bake().run(job(out, {"weights": source, "answers": data}, options, notices))
    return out / "weights", facts


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_folder_computes_what_the_gates_do(tmp_path, family, monkeypatch):
    source, data = tiny(tmp_path / "m", family), answers(tmp_path / "a")
    chosen = [torch.linspace(-3, 3, WIDTH)[torch.randperm(WIDTH)] for _ in range(2)]
    history = [{"step": 1, "val_nll": 0.0}]
    monkeypatch.setattr(gates, "train_gates", lambda *_: (chosen, history))
    folder, facts = baked(source, data, tmp_path / "o")
    assert facts["accepted"] and facts["history"] == history
    ids = torch.arange(1, 60).unsqueeze(0)
    lazy = LazyModel(source)
    model = lazy.pin()
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        with gates.gated(lazy, lambda i: chosen[i].sigmoid()):
            want = model(input_ids=ids).logits
        got = load(folder)(input_ids=ids).logits
    assert torch.allclose(got, want, atol=1e-6) and (plain - want).abs().max() > 1e-4


def test_gates_that_do_not_help_leave_every_byte(tmp_path, monkeypatch):
    source, data, notices = tiny(tmp_path / "m"), answers(tmp_path / "a"), []
    closed = [torch.full((WIDTH,), -9.0)] * 2
    monkeypatch.setattr(gates, "train_gates", lambda *_: (closed, [{"step": 1, "val_nll": 99.0}]))
    folder, facts = baked(source, data, tmp_path / "o", notices)
    assert not facts["accepted"] and "gates do not help" in notices[0]
    before, after = tensors(source), tensors(folder)
    assert before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)


def test_it_trains(tmp_path):
    _, facts = baked(tiny(tmp_path / "m"), answers(tmp_path / "a"), tmp_path / "o")
    assert [row["step"] for row in facts["history"]] == [1, 2]
    assert facts["val_nll"] == min(row["val_nll"] for row in facts["history"])
