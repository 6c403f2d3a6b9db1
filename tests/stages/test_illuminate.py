"""illuminate on made-up records: what it counts, cuts, writes and warns of."""

import json

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import STREAM, answers, gram_file, illuminate, job

from prune.data import records
from prune.errors import StageError
from prune.nn.model import LazyModel, load
from prune.stages.illuminate import Illuminate
from prune.tiny import save_tiny, tiny, tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("i") / "m")


def by_hand(source, data, split):
    """Per layer, Σ and mean over the tokens of whole records, one plain forward pass a record, float64."""
    model, seen = load(source), {}
    for site in LazyModel(source).sites:
        seen[site.layer] = []
        hook = lambda _, args, found=seen[site.layer]: found.append(args[0][0].double())  # noqa: E731
        model.get_submodule(site.read_out).register_forward_pre_hook(hook)
    with torch.no_grad():
        for record in records.read(data, split):
            model(input_ids=torch.tensor([record.ids]))
    whole = [torch.cat(seen[i]) for i in sorted(seen)]
    return [(a.T @ a / len(a), a.mean(0)) for a in whole]


def test_grams_are_those_of_the_records(tmp_path, source):
    data = answers(tmp_path / "a")
    grams, facts = illuminate(source, data, tmp_path / "i")
    assert facts == {"tokens_train": 181, "tokens_val": 65}
    stored = json.loads((grams / "grams.json").read_text())
    assert facts.items() <= stored.items() and len(stored["energy_train"]) == len(stored["energy_val"]) == 2
    train, val = by_hand(source, data, "train"), by_hand(source, data, "val")
    for layer in range(2):
        found = load_file(gram_file(grams, layer))
        assert torch.allclose(found["train"].double(), train[layer][0], rtol=1e-4, atol=1e-8)
        assert torch.allclose(found["mean"].double(), train[layer][1], rtol=1e-4, atol=1e-7)
        assert torch.allclose(found["val"].double(), val[layer][0], rtol=1e-4, atol=1e-8)
    assert sorted(p.name for p in (tmp_path / "i").iterdir()) == ["grams"], "the hidden states are gone"


def test_test_records_are_never_read(tmp_path, source):
    data = answers(tmp_path / "a")
    (data / "records" / "test.jsonl").unlink()
    illuminate(source, data, tmp_path / "i")


def test_a_file_of_states_gives_the_same_bytes(tmp_path, source):
    data = answers(tmp_path / "a")
    one, _ = illuminate(source, data, tmp_path / "i")
    for name, stream in {"file": {"states": "0"}, "memory": {"resident": "always"}}.items():
        options = {
            "illuminate": {"window": 2048, "tokens": None},
            "stream": STREAM | stream,
            "dtype": "float32",
            "device": "cpu",
        }
        Illuminate().run(job(tmp_path / name, {"weights": source, "answers": data}, options))
        for file in one.iterdir():
            assert (tmp_path / name / "grams" / file.name).read_bytes() == file.read_bytes()
        assert not list((tmp_path / name).glob("states-*"))


@pytest.mark.parametrize(("window", "tokens"), [(16, 0), (17, 0), (64, 0)])
def test_windows_count_each_token_once(tmp_path, source, window, tokens):
    _, facts = illuminate(source, answers(tmp_path / "a"), tmp_path / "i", window=window, tokens=tokens)
    assert facts == {"tokens_train": 181, "tokens_val": 65}


def test_enough_records_for_the_tokens_asked_and_a_quarter_for_val(tmp_path, source):
    data = answers(tmp_path / "a", train=(50,) * 9, val=(10,) * 9)
    _, facts = illuminate(source, data, tmp_path / "i", tokens=120)
    assert facts == {"tokens_train": 150, "tokens_val": 30}
    _, everything = illuminate(source, data, tmp_path / "j", tokens=0)
    assert everything == {"tokens_train": 450, "tokens_val": 90}


def test_the_default_is_twenty_tokens_a_neuron(tmp_path, source):
    data = answers(tmp_path / "a", train=(500,) * 9, val=(400,) * 4)
    _, facts = illuminate(source, data, tmp_path / "i")
    assert facts == {"tokens_train": 4000, "tokens_val": 1200}


def test_few_tokens_are_warned_of(tmp_path, source):
    notices = []
    illuminate(source, answers(tmp_path / "a"), tmp_path / "i", notices)
    assert len(notices) == 1 and notices[0].startswith("181 calibration tokens are 1.0 a neuron")
    illuminate(source, answers(tmp_path / "b", train=(440,) * 4), tmp_path / "j", notices)
    assert len(notices) == 1


def test_activations_beyond_float16_stop_it_by_name(tmp_path):
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight *= 3e6
    source = save_tiny(model, tmp_path / "m")
    data = answers(tmp_path / "a")
    with pytest.raises(StageError, match=r"layer 0 of m: .*dtype=float32"):
        illuminate(source, data, tmp_path / "i", dtype="fp16")
    grams, _ = illuminate(source, data, tmp_path / "j")
    assert all(torch.isfinite(t).all() for t in load_file(gram_file(grams, 0)).values())
