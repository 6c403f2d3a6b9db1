"""Widths from a target, and what the plan says of them."""

import pytest
import torch
from stage_jobs import UNIFORM, plan_options

from prune.errors import UsageError
from prune.nn.model import LazyModel
from prune.nn.planning import Planner, asked
from prune.tiny import WIDTH, tiny

LAYERS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return LazyModel(tiny(tmp_path_factory.mktemp("p") / "m", num_hidden_layers=LAYERS))


def curves(count=LAYERS):
    return [torch.linspace(1, 0, WIDTH + 1, dtype=torch.float64) ** (i + 1) for i in range(count)]


def planner(model, **options):
    return Planner(model, plan_options(**options))


def test_uniform_is_the_widest_step_within_the_target(model):
    for share in (0.3, 0.5, 0.64, 0.75, 1.0):
        found = planner(model, ffn=share)
        widths = found.widths()
        assert len(set(widths)) == 1 and sum(widths) <= round(share * LAYERS * WIDTH)
        assert widths[0] in (WIDTH, *range(16, WIDTH, 16))
        wider = min(widths[0] + 16, WIDTH)
        assert widths[0] == WIDTH or wider * LAYERS > round(share * LAYERS * WIDTH)
        assert found.totals(widths)["neurons_after"] == sum(widths)


def test_a_group_widens_the_step(model):
    assert planner(model, ffn=0.75, group=64).widths() == [128] * LAYERS
    assert planner(model, ffn=0.75, align=48, group=32).step == 96


SPREAD = UNIFORM | {"spread": True}


def test_spread_comes_closer_and_needs_widths_that_may_differ(model):
    found = planner(model, ffn=0.68, allocator=SPREAD, widths="exact")
    found.know(curves(), [1.0] * LAYERS)
    widths = found.widths()
    total = round(0.68 * LAYERS * WIDTH)
    assert 0 <= total - sum(widths) < 16 and set(widths) == {112, 128}
    assert found.saved(widths) == widths
    padded = planner(model, ffn=0.68, allocator=SPREAD, widths="padded")
    assert padded.saved(widths) == [max(widths)] * LAYERS
    totals = padded.totals(widths)
    assert totals["params_after"] < totals["params_saved"] < totals["params_before"]
    with pytest.raises(UsageError, match=rf"from {min(widths)} to {max(widths)}.*save.widths=padded"):
        planner(model, ffn=0.68, allocator=SPREAD).widths()


@pytest.mark.parametrize("widths", ["padded", "exact"])
def test_protected_edges_stay_whole(model, widths):
    found = planner(model, ffn=0.75, protect_first=1, protect_last=2, widths=widths)
    got = found.widths()
    assert [got[0], got[4], got[5]] == [WIDTH] * 3 and len(set(got[1:4])) == 1 and got[1] < WIDTH
    assert sum(got) <= found.total < sum(got) + 3 * 16


def test_protected_edges_need_widths_that_may_differ(model):
    with pytest.raises(UsageError, match=r"save\.widths=uniform wants one"):
        planner(model, ffn=0.75, protect_first=1).widths()


def test_a_target_below_the_floors_is_refused(model):
    with pytest.raises(UsageError, match=r"keeps 211 FFN neurons, but the floors keep 288 "):
        planner(model, ffn=0.2).check()
    planner(model, ffn=0.2, min_width=0.1).check()


def test_an_allocator_sees_the_curves_at_every_step(model, monkeypatch):
    seen = []

    class Spy:
        def widths(self, rooms, total, step):
            seen.extend(rooms)
            return [128] * len(rooms)

    monkeypatch.setattr("prune.nn.planning.build", lambda node: Spy())
    found = planner(model, ffn=0.75)
    assert found.widths() == [128] * LAYERS and all(r.rel == () for r in seen)
    seen.clear()
    found.know(curves(), list(range(LAYERS)), [[0.5] * len(stops) for stops in found.stops])
    found.widths()
    for i, room in enumerate(seen):
        assert [k for k, _ in room.rel] == [*range(48, WIDTH, 16), WIDTH] and room.energy == i
        assert [r for _, r in room.rel] == [float(curves()[i][k]) for k, _ in room.rel]
        assert room.cost == [(k, 0.5) for k, _ in room.rel]


def test_the_table_says_what_was_decided(model):
    found = planner(model, ffn=0.73)
    widths = found.widths()
    table = found.table(widths, curves(), 12_800)
    row = table["layers"][2]
    assert (row["full"], row["kept"], row["protected"]) == (WIDTH, 128, False)
    assert row["rel_train"] == pytest.approx(float(curves()[2][128])) and row["tokens_per_neuron"] == 100
    assert table["totals"]["asked"] == "ffn=0.73" and table["totals"]["step"] == 16
    stops = table["curves"]["widths"]
    assert stops[-1] == WIDTH and [c[-1] for c in table["curves"]["rel"]] == [0.0] * LAYERS
    assert table["curves"]["rel"][1] == pytest.approx([float(curves()[1][s]) for s in stops])
    assert table["warnings"] == []


def warned(model, tokens=10**6, **options):
    found = planner(model, **options)
    return found.table(found.widths(), curves(), tokens)["warnings"]


def test_warnings(model):
    (thin,) = warned(model, tokens=1279, ffn=0.73)
    assert thin.startswith("6 layers have under 10 calibration tokens a kept neuron (1,279")
    (floored,) = warned(model, ffn=0.2728)
    assert floored.startswith("6 layers stand at their floor")
    (missed,) = warned(model, ffn=0.75, align=128, min_width=0.5)[-1:]
    assert "768 neurons stay where 792 were asked" in missed
    found = planner(model, rise="5%")
    assert found.table([WIDTH] * LAYERS, curves(), 10**6)["warnings"] == [
        "no narrower fold stays within target.max_nll_rise=5%: every neuron is kept"
    ]
    assert found.table([128] * LAYERS, curves(), 10**6)["warnings"] == []


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"ffn": 0.75}, "ffn=0.75"),
        ({"size": "80K"}, "size=80K"),
        ({"ratio": 0.8}, "ratio=0.8"),
        ({"rise": "5%"}, "target.max_nll_rise=5%"),
    ],
)
def test_the_target_as_it_was_typed(given, want):
    assert asked(plan_options(**given)) == want
