"""plan on Gram matrices of a tiny model: the keep-sets, and what it writes."""

import pytest
import torch
from safetensors.torch import load_file
from stage_jobs import UNIFORM, answers, gram_file, illuminate, plan, plan_options

from prune.errors import UsageError
from prune.nn.model import LazyModel
from prune.stages.plan import Plan
from prune.tiny import WIDTH, plant, save_tiny, tiny, tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def lit(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("p")
    source = tiny(folder / "m", request.param)
    return source, illuminate(source, answers(folder / "a"), folder / "i")[0]


def test_the_most_important_neurons_stay(tmp_path, lit):
    source, grams = lit
    folder, found = plan(source, grams, tmp_path, ffn=0.5)
    keep = load_file(folder / "keep.safetensors")
    model = LazyModel(source)
    for site in model.sites:
        weight = model.tensor(f"{site.read_out}.weight")
        weight = weight.T if site.transposed else weight
        score = load_file(gram_file(grams, site.layer))["train"].diagonal() * weight.square().sum(0)
        want = score.argsort(descending=True)[:80].sort().values
        assert torch.equal(keep[str(site.layer)], want) and keep[str(site.layer)].dtype == torch.int64
        assert found["layers"][site.layer]["kept"] == 80
    assert found["totals"]["neurons_after"] == 160 and found["totals"]["asked"] == "ffn=0.5"


def test_the_error_in_the_table_is_that_of_least_squares(tmp_path, lit):
    source, grams = lit
    folder, found = plan(source, grams, tmp_path, ffn=0.5)
    keep = load_file(folder / "keep.safetensors")
    model = LazyModel(source)
    for site in model.sites:
        sigma = load_file(gram_file(grams, site.layer))["train"].double()
        weight = model.tensor(f"{site.read_out}.weight").double()
        weight = weight.T if site.transposed else weight
        s = keep[str(site.layer)]
        best = weight @ sigma[:, s] @ torch.linalg.pinv(sigma[s][:, s], rtol=1e-9, hermitian=True)
        change = weight.clone()
        change[:, s] -= best
        want = torch.trace(change @ sigma @ change.T) / torch.trace(weight @ sigma @ weight.T)
        assert found["layers"][site.layer]["rel_train"] == pytest.approx(float(want), rel=0.05, abs=1e-4)


def test_dead_neurons_go_first(tmp_path):
    model = tiny_model()
    alive = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(1))[:128].sort().values
    plant(model, alive.tolist())
    source = save_tiny(model, tmp_path / "m")
    grams, _ = illuminate(source, answers(tmp_path / "a", train=(20,) * 3), tmp_path / "i")
    folder, found = plan(source, grams, tmp_path / "p", ffn=128 / WIDTH)
    for kept in load_file(folder / "keep.safetensors").values():
        assert torch.equal(kept, alive)
    assert all(row["rel_train"] < 1e-6 for row in found["layers"])


def test_warnings_are_said_as_well_as_written(tmp_path, lit):
    notices = []
    _, found = plan(*lit, tmp_path, notices, ffn=0.5)
    assert notices == found["warnings"] and any("181 in all" in n for n in notices)


def test_equal_steps_share_a_result():
    settle = Plan().settle
    one = settle(plan_options(ffn=0.5, align=128, group=64))
    assert (
        one == settle(plan_options(ffn=0.5, align=64, group=128)) == settle(plan_options(ffn=0.5, align=128))
    )
    assert one != settle(plan_options(ffn=0.5, align=64)) and one != settle(plan_options(ffn=0.6, align=128))


def test_a_target_below_the_floors_is_refused(tmp_path, lit):
    with pytest.raises(UsageError, match=r"keeps 70 FFN neurons, but the floors keep 96"):
        plan(*lit, tmp_path, ffn=0.2)
    assert not (tmp_path / "plan").exists()


def test_widths_that_differ_keep_as_many_neurons_each(tmp_path, lit):
    options = {"ffn": 0.69, "widths": "exact", "allocator": UNIFORM | {"spread": True}}
    folder, found = plan(*lit, tmp_path, **options)
    keep = load_file(folder / "keep.safetensors")
    assert sorted(row["kept"] for row in found["layers"]) == [112, 128]
    for row in found["layers"]:
        kept = keep[str(row["layer"])]
        assert len(kept) == row["kept"] == len(set(kept.tolist())) and (kept.diff() > 0).all()
