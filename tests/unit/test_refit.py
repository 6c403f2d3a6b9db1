"""The refit and its error curve against explicit least squares in float64."""

import numpy as np
import pytest
import torch

from prune.errors import StageError
from prune.nn.refit import (
    best_refit,
    bias_shift,
    cholesky,
    complement,
    error_curve,
    output_energy,
    own_output,
)

torch.set_num_threads(1)
RIDGES = (0.03, 0.1, 0.3)
WIDTH, HIDDEN = 40, 12


def choose(train, val, weight, keep, ridges, mode):
    """The refit toward the layer's own output, as the one-shot fold asks for it."""
    weight = weight.double()
    solve, judge = own_output(train, weight, keep), own_output(val, weight, keep)
    return best_refit(solve, judge, output_energy(val.double(), weight), ridges, mode)


def data(tokens=400, val=150, dead=(), seed=0):
    """Correlated read-out inputs on train and on val, and W; ``dead`` neurons never fire."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(WIDTH // 2, WIDTH, generator=generator)
    draw = lambda n: (  # noqa: E731
        torch.randn(n, WIDTH // 2, generator=generator) @ mixing
        + torch.randn(n, WIDTH, generator=generator)
        + 0.3
    )
    a, b = draw(tokens), draw(val)
    a[:, list(dead)] = b[:, list(dead)] = 0
    return a.double(), b.double(), torch.randn(HIDDEN, WIDTH, generator=generator)


def sigma(a):
    return (a.T @ a / len(a)).float()


KEEP = torch.arange(0, WIDTH, 2)


def lost(a, weight, keep, correction=None):
    """Relative squared output error of a fold, token by token."""
    w = weight.double()
    read_out = w[:, keep] if correction is None else w[:, keep] + correction
    return float((a @ w.T - a[:, keep] @ read_out.T).square().sum() / (a @ w.T).square().sum())


def ridge_by_numpy(a, weight, keep, ridge):
    """C = W_P Σ_PS (Σ_SS + ρ·mean(diag Σ_SS)·I)⁻¹."""
    whole = (a.T @ a / len(a)).numpy()
    s, p = keep.numpy(), complement(keep, WIDTH).numpy()
    kept = whole[np.ix_(s, s)]
    shifted = kept + ridge * np.trace(kept) / len(s) * np.eye(len(s))
    return torch.from_numpy(weight.double().numpy()[:, p] @ whole[np.ix_(p, s)] @ np.linalg.inv(shifted))


def test_the_curve_is_the_least_squares_error_of_every_width():
    a, _, weight = data()
    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(1))
    curve = error_curve(sigma(a), weight, order)
    assert len(curve) == WIDTH + 1 and curve[0] == pytest.approx(1) and curve[-1] == 0
    assert (curve.diff() <= 0).all()
    target = a @ weight.double().T
    for k in (1, 7, 20, 33, 39):
        kept = a[:, order[:k]]
        best = torch.linalg.lstsq(kept, target).solution
        want = (target - kept @ best).square().sum() / target.square().sum()
        assert float(curve[k]) == pytest.approx(float(want), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_the_least_explicit_error_on_val(mode, seed):
    a, b, weight = data(tokens=60 + 100 * seed, seed=seed)
    best, plain = choose(sigma(a), sigma(b), weight, KEEP, RIDGES, mode)
    errors = {r: lost(b, weight, KEEP, ridge_by_numpy(a, weight, KEEP, r)) for r in RIDGES}
    errors |= {None: lost(b, weight, KEEP)} if mode == "auto" else {}
    assert plain == pytest.approx(lost(b, weight, KEEP), rel=1e-4)
    assert best.ridge == min(errors, key=errors.get)
    assert best.error == pytest.approx(errors[best.ridge], rel=1e-3) and best.damping == best.ridge
    want = ridge_by_numpy(a, weight, KEEP, best.ridge)
    assert (best.correction - want).abs().max() < 1e-4 * want.abs().max()


def test_a_val_that_disagrees_makes_auto_keep_the_plain_cut():
    a, _, weight = data(seed=5)
    opposite = torch.eye(WIDTH)
    opposite[0::2, 1::2] = -0.04  # kept and dropped neurons are correlated the other way
    opposite[1::2, 0::2] = -0.04
    best, plain = choose(sigma(a), opposite, weight, KEEP, RIDGES, "auto")
    forced, _ = choose(sigma(a), opposite, weight, KEEP, RIDGES, "on")
    assert best.ridge is None and best.correction is None and best.error == plain < forced.error
    assert forced.ridge == 0.3


def test_off_is_the_plain_cut():
    a, b, weight = data()
    best, plain = choose(sigma(a), sigma(b), weight, KEEP, RIDGES, "off")
    assert (best.ridge, best.correction, best.error) == (None, None, plain)


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
def test_keeping_everything_costs_nothing(mode):
    a, b, weight = data()
    best, plain = choose(sigma(a), sigma(b), weight, torch.arange(WIDTH), RIDGES, mode)
    assert best.correction is None and best.error == plain == 0


def test_ties_go_to_the_larger_ridge():
    """Kept and dropped neurons that never fire together leave nothing to correct: every ridge errs alike."""
    _, _, weight = data()
    best, _ = choose(torch.eye(WIDTH), torch.eye(WIDTH), weight, KEEP, (0.03, 0.3, 0.1), "on")
    assert best.ridge == 0.3 and not best.correction.any()


@pytest.mark.parametrize("ridge", [1e-6, 0.03, 0.3, 3.0, 100.0])
@pytest.mark.parametrize("tokens", [5, 40, 400])
def test_the_correction_never_errs_more_than_no_refit_on_its_own_gram(ridge, tokens):
    a, _, weight = data(tokens)
    best, plain = choose(sigma(a), sigma(a), weight, KEEP, [ridge], "on")
    assert best.error <= plain and lost(a, weight, KEEP, best.correction) <= lost(a, weight, KEEP)


@pytest.mark.parametrize(("tokens", "dead"), [(3, ()), (19, ()), (400, (0, 4, 7, 31)), (2, (0, 2, 4))])
@pytest.mark.parametrize("ridge", [0.0, 1e-14, 0.03])
def test_a_singular_gram_gives_finite_numbers(tokens, dead, ridge):
    a, b, weight = data(tokens, dead=dead)
    best, plain = choose(sigma(a), sigma(b), weight, KEEP, [ridge], "on")
    assert torch.isfinite(best.correction).all() and np.isfinite([best.error, plain]).all()
    assert best.damping >= ridge and (ridge > 0 or best.damping > 0)
    curve = error_curve(sigma(a), weight, torch.arange(WIDTH))
    assert torch.isfinite(curve).all() and (curve.diff() <= 0).all() and curve[0] <= 1 + 1e-6


def test_damping_grows_until_it_factors_and_is_told():
    vector = torch.randn(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rank_one = torch.outer(vector, vector) - 1e-9 * torch.eye(6, dtype=torch.float64)
    before = rank_one.clone()
    factor, damping = cholesky(rank_one, 1e-12)
    assert damping > 1e-10 and torch.equal(rank_one, before)
    shifted = rank_one + damping * rank_one.diagonal().mean() * torch.eye(6)
    assert torch.allclose(factor @ factor.T, shifted, atol=1e-12)


def test_a_gram_without_a_single_active_neuron_folds_to_nothing():
    zero = torch.zeros(WIDTH, WIDTH)
    best, plain = choose(zero, zero, data()[2], KEEP, RIDGES, "on")
    assert plain == 0 and best.correction is None and best.error == 0
    assert torch.isfinite(error_curve(zero, data()[2], torch.arange(WIDTH))).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gram_that_is_not_finite_is_an_error(bad):
    gram = torch.eye(WIDTH)
    gram[0, 0] = bad
    with pytest.raises(StageError, match="not finite"):
        choose(gram, torch.eye(WIDTH), data()[2], KEEP, RIDGES, "on")
    with pytest.raises(StageError, match="not finite"):
        choose(torch.eye(WIDTH), gram, data()[2], KEEP, RIDGES, "auto")


def test_the_bias_keeps_the_mean_output():
    a, b, weight = data()
    best, _ = choose(sigma(a), sigma(b), weight, KEEP, RIDGES, "on")
    mean, w = a.mean(0), weight.double()
    for correction in (None, best.correction):
        read_out = w[:, KEEP] if correction is None else w[:, KEEP] + correction
        after = (a[:, KEEP] @ read_out.T).mean(0) + bias_shift(weight, mean, KEEP, correction)
        assert torch.allclose(after, (a @ w.T).mean(0), atol=1e-10)


def test_energy_is_the_mean_squared_output():
    a, _, weight = data()
    want = (a @ weight.double().T).square().sum(1).mean()
    assert output_energy(sigma(a), weight) == pytest.approx(float(want), rel=1e-4)


def test_complement():
    assert (
        complement(torch.tensor([0, 3]), 5).tolist() == [1, 2, 4]
        and complement(torch.arange(5), 5).tolist() == []
    )
