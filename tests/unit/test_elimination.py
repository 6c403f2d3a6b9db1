"""Selectors against slow twins that solve every least-squares problem anew."""

import pytest
import torch

from prune.nn.elimination import elimination_order, pursuit_order
from prune.testing import random_site


def lost(gram, weight, keep):
    """Output energy that no weights on ``keep`` can give back."""
    gram, weight = gram.double(), weight.double()
    kept = gram[keep][:, keep]
    solved = torch.linalg.lstsq(kept, gram[keep] @ weight.T, driver="gelsd").solution
    return float((weight @ gram * weight).sum() - (solved.T @ kept * solved.T).sum())


def slow_pursuit(gram, weight):
    chosen, left = [], list(range(len(gram)))
    while left:
        best = min(left, key=lambda j: lost(gram, weight, [*chosen, j]))
        chosen.append(best)
        left.remove(best)
    return chosen


def slow_elimination(gram, weight):
    alive, gone = list(range(len(gram))), []
    while len(alive) > 1:
        worst = min(alive, key=lambda j: lost(gram, weight, [i for i in alive if i != j]))
        alive.remove(worst)
        gone.append(worst)
    return [*alive, *gone[::-1]]


@pytest.mark.parametrize("seed", range(4))
def test_the_plain_pursuit_is_the_greedy_least_squares_choice(seed):
    site = random_site(14, 6, 200, seed=seed)
    order = pursuit_order(site.gram, site.weight, 1).tolist()
    assert (
        order[:6] == slow_pursuit(site.gram, site.weight)[:6]
    )  # with D = 6, six may explain almost everything
    assert sorted(order) == list(range(14))


@pytest.mark.parametrize("seed", range(4))
def test_plain_elimination_is_the_least_squares_choice(seed):
    site = random_site(14, 20, 200, seed=seed)
    assert elimination_order(site.gram, site.weight, 1).tolist() == slow_elimination(site.gram, site.weight)


@pytest.mark.parametrize("order", [pursuit_order, elimination_order])
@pytest.mark.parametrize(("tokens", "keep"), [(30, 16), (400, 48)])
def test_blocks_lose_little_and_beat_importance(order, tokens, keep):
    site = random_site(96, 40, tokens, seed=5)
    score = site.gram.diagonal() * site.weight.square().sum(0)
    plain = lost(site.gram, site.weight, score.argsort(descending=True)[:keep].tolist())
    one = lost(site.gram, site.weight, order(site.gram, site.weight, 1)[:keep].tolist())
    eight = lost(site.gram, site.weight, order(site.gram, site.weight, 8)[:keep].tolist())
    assert one < plain and eight < plain
    assert eight <= 1.15 * one


@pytest.mark.parametrize("order", [pursuit_order, elimination_order])
def test_a_singular_gram_still_gives_an_order(order):
    site = random_site(40, 8, 10, dead=(1, 5))
    assert sorted(order(site.gram, site.weight, 4).tolist()) == list(range(40))
