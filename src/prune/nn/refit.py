"""Folding dropped neurons into kept ones: ridge least squares in correction form, and its error curve.

W is the read-out [D, F], Σ the Gram of its input, S the kept and P the dropped neurons. The correction form
W′ = W_S + C with C = W_P Σ_PS (Σ_SS + εI)⁻¹, ε = ρ·mean(diag Σ_SS), shrinks the correction, not the weights:
it is never worse on the calibration tokens than no refit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prune.errors import StageError

DAMPING = 1e-10  # of the mean diagonal: the first try of a factorization that wants none


@dataclass(frozen=True)
class Refit:
    """What a fold does to one read-out."""

    ridge: float | None  #: ρ, None for the plain cut
    correction: Tensor | None  #: C, float64 [D, |S|]
    error: float  #: relative output error on the judging Gram
    damping: float  #: ε that the factorization needed, in units of mean(diag Σ_SS)


def cholesky(matrix: Tensor, damping: float) -> tuple[Tensor, float]:
    """Lower factor of matrix + damping·mean(diag)·I, and the damping that succeeded (tenfold a failure).

    :param matrix: symmetric positive semidefinite, float64 [n, n]; left as it is.
    :raises StageError: where it holds a number that is not finite.
    """
    _require_finite(matrix)
    mean = matrix.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    while True:
        shifted = matrix.clone()
        shifted.diagonal().add_(damping * mean)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            return factor, damping
        damping = max(10 * damping, DAMPING)


def output_energy(gram: Tensor, weight: Tensor) -> float:
    """tr(W Σ Wᵀ): the mean squared output of a read-out [D, F]."""
    return float(((weight @ gram) * weight).sum())


def residual_curve(gram: Tensor, weight: Tensor, order: Tensor, metric: Tensor | None = None) -> Tensor:
    """Least-squares output error of keeping the first k neurons of ``order``, float64 [F + 1].

    With Σ = L Lᵀ in that order, the best refit leaves R with R Σ Rᵀ = Σ_{c≥k} (W L)_{:,c} (W L)_{:,c}ᵀ:
    one factorization and one product, F³/3 + D·F² FLOPs, give every width.

    :param metric: M, symmetric [D, D]: the error is then tr(M R Σ Rᵀ), else tr(R Σ Rᵀ).
    """
    ordered = gram[order][:, order].double()
    factor, _ = cholesky(ordered, DAMPING)
    columns = weight[:, order].float() @ factor.float()
    seen = columns if metric is None else metric.float() @ columns
    energy = (columns.double() * seen.double()).sum(0)
    return torch.cat([energy.flip(0).cumsum(0).flip(0), energy.new_zeros(1)])


def error_curve(gram: Tensor, weight: Tensor, order: Tensor) -> Tensor:
    """:func:`residual_curve` relative to the layer's output energy."""
    tail = residual_curve(gram, weight, order)
    return tail / tail[0].clamp_min(torch.finfo(torch.float64).tiny)


@dataclass(frozen=True)
class Moments:
    """What a refit needs to know of r = T − W_S ã, the part of a target that the plain cut leaves undone."""

    kept: Tensor  #: E[ã ãᵀ] of the kept inputs, float64 [|S|, |S|]
    cross: Tensor  #: E[ã rᵀ], float64 [|S|, D]
    rest: float  #: E‖r‖²


def own_output(gram: Tensor, weight: Tensor, keep: Tensor) -> Moments:
    """The moments where the target is the layer's own output W a: r = W_P a_P.

    :param gram: Σ, float32 [F, F].
    :param weight: W, float64 [D, F].
    :param keep: S, int64, ascending.
    :raises StageError: for a Gram that is not finite.
    """
    _require_finite(gram)
    drop = complement(keep, weight.shape[1])
    dropped = weight[:, drop]
    rows = gram[keep].double()
    return Moments(
        rows[:, keep], rows[:, drop] @ dropped.T, output_energy(gram[drop][:, drop].double(), dropped)
    )


def best_refit(
    train: Moments, val: Moments, energy: float, ridges: Sequence[float], mode: str
) -> tuple[Refit, float]:
    """The refit with the least error on val, and the plain cut's error there.

    :param train: solves for the correction.
    :param val: judges it.
    :param energy: what errors are relative to: the layer's output energy on val.
    :param mode: ``auto`` lets the plain cut compete, ``on`` does not, ``off`` is the plain cut.
    """
    energy = max(energy, torch.finfo(torch.float64).tiny)
    plain = Refit(None, None, val.rest / energy, 0.0)
    if mode == "off" or train.rest == 0:
        return plain, plain.error
    tried = [] if mode == "on" else [plain]
    for ridge in sorted(ridges, reverse=True):  # ties go to the larger ridge
        factor, damping = cholesky(train.kept, ridge)
        correction = torch.cholesky_solve(train.cross, factor).T
        lost = val.rest - 2 * float((correction.T * val.cross).sum()) + output_energy(val.kept, correction)
        tried.append(Refit(ridge, correction, max(lost, 0.0) / energy, damping))
    return min(tried, key=lambda r: r.error), plain.error


def bias_shift(weight: Tensor, mean: Tensor, keep: Tensor, correction: Tensor | None) -> Tensor:
    """What a read-out's bias gains so that the mean output is kept: W_P μ_P − C μ_S, float64 [D]."""
    mean = mean.double()
    drop = complement(keep, len(mean))
    shift = weight[:, drop].double() @ mean[drop]
    return shift if correction is None else shift - correction @ mean[keep]


def complement(keep: Tensor, width: int) -> Tensor:
    """The neurons of 0 … width − 1 that are not kept, ascending."""
    mask = torch.ones(width, dtype=torch.bool)
    mask[keep] = False
    return mask.nonzero().squeeze(1)


def _require_finite(gram: Tensor) -> None:
    if not torch.isfinite(gram).all():
        raise StageError("a Gram matrix is not finite; compute it again with dtype=float32 (redo=illuminate)")
