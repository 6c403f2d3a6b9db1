"""The forecast of an output against the files that fold and quant then write."""

import pytest
from safetensors import safe_open
from stage_jobs import AS_IS, F16, Q8, UNIFORM, answers, fold, illuminate, plan, plan_options, quant

from prune.errors import UsageError
from prune.nn.forecast import forecast, stored_share
from prune.nn.gram import gram_facts
from prune.nn.model import LazyModel
from prune.nn.planning import Planner
from prune.parts import build
from prune.tiny import FAMILIES, tiny


def stored_bytes(folder):
    """Bytes of every tensor in every file of a folder."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            tensors = [file.get_tensor(n) for n in file.keys()]  # noqa: SIM118
        total += sum(t.numel() * t.element_size() for t in tensors)
    return total


SPREAD = UNIFORM | {"spread": True}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_files_weigh_what_was_forecast(tmp_path, family):
    source = tiny(tmp_path / "m", family, "bfloat16")
    model = LazyModel(source)
    assert forecast(model).nbytes == stored_bytes(source)
    grams, _ = illuminate(source, answers(tmp_path / "a"), tmp_path / "i")
    for mode in ("padded", "exact"):
        options = {"ffn": 0.69, "widths": mode, "allocator": SPREAD}
        planned, _ = plan(source, grams, tmp_path / f"p{mode}", **options)
        folded, _ = fold(source, grams, planned, tmp_path / f"f{mode}", mode)
        planner = Planner(model, plan_options(**options))
        planner.rank(gram_facts(grams)["routed_train"])
        kept = planner.widths()
        assert len(set(kept)) > 1
        for name, codec in {"none": AS_IS, "f16": F16, "q8": Q8}.items():
            if (family, name) == ("gpt2", "q8"):
                with pytest.raises(UsageError, match=r"codec: .*c_attn.*transposed"):
                    forecast(model, planner.saved(kept), build(codec))
                continue
            expected = forecast(model, planner.saved(kept), build(codec))
            built = build(codec)
            written = folded if built.idle else quant(folded, tmp_path / f"{name}{mode}", codec)[0]
            assert expected.nbytes == stored_bytes(written), (mode, name)
            assert expected.parameters == planner.budget.parameters(planner.saved(kept))
            out = LazyModel(written)
            assert {n: (e.dtype, e.shape) for n, e in out.checkpoint.entries.items()} == expected.specs


def test_what_the_codec_stores_of_a_finished_model(tmp_path):
    source = tiny(tmp_path / "m", dtype="bfloat16")
    weights, facts = quant(source, tmp_path / "q", Q8)
    model = LazyModel(weights)
    count, bits, notes = stored_share(model, build(Q8))
    inside = sum(p.numel() for n, p in model.model.named_parameters() if "proj.weight" in n)
    assert count == inside and facts["matrices"] == 14
    entries = model.checkpoint.entries
    packed = sum(e.nbytes for n, e in entries.items() if ".weight_" in n)
    assert bits == pytest.approx(8 * packed / inside) and 8 < bits < 10
    assert any("176 columns: groups of 16" in n for n in notes)
    assert stored_share(LazyModel(source), build(AS_IS)) == (0, 16, [])
