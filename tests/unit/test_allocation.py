"""Sharing a total out, against brute force."""

import itertools
import random

import pytest

from prune.allocation import by_fraction, cheapest, ladder, narrowed, stops
from prune.parts import Room


def rooms_with_costs(seed, layers=4, full=176, step=32):
    """Random costs, falling with the width, 0 at the full one."""
    draw = random.Random(seed)
    made = []
    for _ in range(layers):
        room = Room(full, 64, draw.random() < 0.2)
        widths = stops(room, step)
        costs = [*sorted((draw.random() for _ in widths[:-1]), reverse=True), 0.0]
        made.append(Room(full, 64, room.protected, cost=list(zip(widths, costs, strict=True))))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_widths_are_those_of_brute_force(seed):
    rooms = rooms_with_costs(seed)
    least = sum(r.cost[0][0] for r in rooms)
    total = random.Random(seed).randint(least, 4 * 176)
    every = (c for c in itertools.product(*(r.cost for r in rooms)) if sum(w for w, _ in c) <= total)
    want = min(sum(cost for _, cost in combination) for combination in every)
    widths = cheapest(rooms, total)
    assert sum(widths) <= total
    assert sum(dict(r.cost)[w] for r, w in zip(rooms, widths, strict=True)) == pytest.approx(want)


def test_below_the_floors_is_refused():
    rooms = rooms_with_costs(3)
    short = sum(r.cost[0][0] for r in rooms) - 1
    for share in (lambda: cheapest(rooms, short), lambda: narrowed(rooms, short, 32, lambda i, w: -w)):
        with pytest.raises(ValueError, match="floors"):
            share()


def test_narrowing_takes_the_least_loss_each_time():
    rooms = [Room(128, 32, False), Room(128, 32, False), Room(128, 32, True)]
    loss = [{128: 0.0, 96: 0.1, 64: 0.5, 32: 0.9}, {128: 0.0, 96: 0.3, 64: 0.35, 32: 5.0}, {128: 0.0}]
    found = [narrowed(rooms, total, 32, lambda i, w: loss[i][w]) for total in (384, 352, 320, 288, 256)]
    assert found == [[128, 128, 128], [96, 128, 128], [96, 96, 128], [96, 64, 128], [64, 64, 128]]


def test_the_ladder_holds_every_uniform_plan():
    rooms = [Room(176, 48, False), Room(176, 48, True), Room(88, 32, False)]
    rungs = ladder(rooms, 16)
    assert rungs[0] == [48, 176, 32] and rungs[-1] == [176, 176, 88]
    assert [sum(r) for r in rungs] == sorted({sum(r) for r in rungs})
    assert all(by_fraction(rooms, sum(r), 16) == r for r in rungs)
