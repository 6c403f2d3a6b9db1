"""The arithmetic of a narrowed model against models that really are that narrow."""

import pytest

from prune.errors import UsageError
from prune.nn.budget import Budget, budget_of, check_reach, kept_neurons, rooms_of
from prune.nn.layout import LAYOUTS
from prune.nn.model import LazyModel
from prune.nn.skeleton import skeleton
from prune.parts import Room
from prune.tiny import FAMILIES, WIDTH, tiny, tiny_model

PLAIN = {"protect_first": 0, "protect_last": 0, "min_width": 0.25, "align": 16}


def counted(model):
    return sum(p.numel() for p in model.parameters())  # torch counts a shared head once


def at(family, width):
    """What a family's config takes to have FFNs of a width."""
    layout = LAYOUTS[family]
    if layout.mixture:
        return dict.fromkeys((layout.mixture.width_key, layout.mixture.shared_key), width)
    key, _, nested = layout.width_key.partition(".")
    return {key: FAMILIES[family][key] | {nested: width} if nested else width}


@pytest.fixture(scope="module", params=FAMILIES)
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("b") / "m"
    return request.param, LazyModel(tiny(folder, request.param))


def test_parameters_at_any_width_are_those_of_such_a_model(source):
    family, model = source
    budget = budget_of(model)
    assert set(budget.full) == {WIDTH} and len(budget.full) == len(model.sites)
    for width in (WIDTH, 128, 16):
        widths = [width] * len(model.sites)
        assert budget.parameters(widths) == counted(tiny_model(family, **at(family, width)))
    widths = [128 if s.layer else 48 for s in model.sites]
    narrow = skeleton(model.config, widths)
    assert budget.parameters(widths) == counted(narrow) - counted(skeleton(model.config)) + counted(
        tiny_model(family)
    )


@pytest.mark.parametrize("share", [0.3, 0.5, 0.77, 1.0])
def test_a_size_or_ratio_is_met_from_below_to_the_neuron(source, share):
    _, model = source
    budget = budget_of(model)
    whole = budget.parameters(budget.full)
    wanted = budget.other + int(share * (whole - budget.other))
    for kept in (
        kept_neurons(budget, None, str(wanted), None),
        kept_neurons(budget, None, None, wanted / whole),
    ):
        per_neuron = budget.per_neuron[0]
        assert budget.other + kept * per_neuron <= wanted < budget.other + (kept + 1) * per_neuron


@pytest.mark.parametrize(("extra", "difference"), [({"mlp_bias": True}, 2 * 2 * WIDTH + 2 * 64), ({}, 0)])
def test_read_in_biases_leave_with_their_neurons(tmp_path, extra, difference):
    one, plain = (budget_of(LazyModel(tiny(tmp_path / n, **e))) for n, e in (("a", extra), ("b", {})))
    assert one.parameters(one.full) - plain.parameters(plain.full) == difference
    assert one.per_neuron[0] - plain.per_neuron[0] == (2 if extra else 0)


def test_a_tied_head_counts_once(tmp_path):
    tied, free = (LazyModel(tiny(tmp_path / str(t), tie_word_embeddings=t)) for t in (True, False))
    assert budget_of(free).other - budget_of(tied).other == 257 * 64


BUDGET = Budget((100, 100, 100, 100), (30, 30, 30, 30), 5000)


@pytest.mark.parametrize(
    ("ffn", "want"), [(0.75, 300), (1, 400), (1.0, 400), (0.333, 133), (75, 300), (100, 400), (1.5, 6)]
)
def test_ffn_is_a_fraction_up_to_one_and_a_mean_width_above(ffn, want):
    assert kept_neurons(BUDGET, ffn, None, None) == want


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        ({"ffn": 101}, ("101", "100")),
        ({"size": "17.001K"}, ("17,001", "17,000")),
        ({"ratio": 1.01}, ("17,170", "17,000")),
        ({"size": "5000"}, ("5,000 parameters", "5,000 of the source")),
        ({"ratio": 0.1}, ("1,700", "5,000")),
    ],
)
def test_a_target_out_of_reach_is_refused_with_both_numbers(target, numbers):
    with pytest.raises(UsageError) as caught:
        kept_neurons(BUDGET, **{"ffn": None, "size": None, "ratio": None} | target)
    assert all(n in str(caught.value) for n in numbers), caught.value


def test_below_the_floors_is_refused_with_both_numbers():
    rooms = [Room(100, 32, False), Room(100, 32, True)]
    check_reach(rooms, 132, 16)
    with pytest.raises(UsageError, match=r"keeps 131 FFN neurons, but the floors keep 132 .*multiples of 16"):
        check_reach(rooms, 131, 16)


@pytest.mark.parametrize(
    ("first", "last", "protected"),
    [(0, 0, ""), (1, 0, "0"), (0, 1, "3"), (1, 2, "023"), (9, 0, "0123"), (2, 2, "0123")],
)
def test_edges_are_protected(first, last, protected):
    rooms = rooms_of(BUDGET, PLAIN | {"protect_first": first, "protect_last": last}, 16)
    assert "".join(str(i) for i, r in enumerate(rooms) if r.protected) == protected


@pytest.mark.parametrize(
    ("least", "step", "floor"),
    [(0.25, 16, 32), (0.25, 25, 25), (0.0, 16, 16), (0.9, 16, 96), (0.97, 16, 100), (1, 1, 100)],
)
def test_floors_are_steps_never_nothing_and_never_above_the_layer(least, step, floor):
    assert {r.floor for r in rooms_of(BUDGET, PLAIN | {"min_width": least}, step)} == {floor}
