"""Orders of neurons that look at the whole output: forward pursuit, backward elimination.

Both work a block of neurons at a time, so that the cost is matrix products. Σ is the Gram of the read-out's
input [F, F], W the read-out [D, F].
"""

from __future__ import annotations

import torch
from torch import Tensor

from .refit import cholesky

RIDGE = 1e-6  # of the mean diagonal: keeps a rank-deficient Σ invertible without moving the order


def pursuit_order(gram: Tensor, weight: Tensor, block: int) -> Tensor:
    """Forward selection on explained output energy (orthogonal matching pursuit on W a), int64 [F].

    With R the residual Gram and C = W R: the neuron that explains most is argmax ‖C_:,j‖² / R_jj; its column
    leaves R and C as in a pivoted Cholesky factorization. Within a block the exact greedy choice is made
    among the best 4·block candidates, then R and C are updated at once. FLOPs: 2F³ + 4D·F²; float32 but for
    the block.
    """
    residual, cross = gram.float().clone(), weight.float() @ gram.float()
    width = len(gram)
    floor = 1e-7 * residual.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    open_ = torch.ones(width, dtype=torch.bool, device=gram.device)
    order: list[Tensor] = []
    for _ in range(0, width, block):
        score = _gain(cross.square().sum(0), residual.diagonal(), floor).masked_fill(~open_, -1)
        count = min(block, int(open_.sum()))
        candidates = score.topk(min(4 * block, int(open_.sum()))).indices
        picked = candidates[_greedy(residual[candidates][:, candidates], cross[:, candidates], count, floor)]
        order.append(picked)
        open_[picked] = False
        _deflate(residual, cross, picked, floor)
    return torch.cat(order)


def elimination_order(gram: Tensor, weight: Tensor, block: int) -> Tensor:
    """Backward elimination by the optimal brain surgeon's rule, the last to leave first, int64 [F].

    With H⁻¹ = (Σ + λI)⁻¹, removing j costs ‖W_:,j‖² / [H⁻¹]_jj and the others take over its output:
    W ← W − W_:,B ([H⁻¹]_BB)⁻¹ H⁻¹_B,: for a block B (Hassibi & Stork 1993; for structures, ZipLM, section 3).
    FLOPs: 2F³ + 2D·F² for all F neurons; float64.
    """
    factor, _ = cholesky(gram.double(), RIDGE)
    inverse = torch.cholesky_inverse(factor)
    weight = weight.double().clone()
    alive = torch.arange(len(gram), device=gram.device)
    order: list[Tensor] = []
    while len(alive):
        cost = weight.square().sum(0) / inverse.diagonal()
        gone = cost.topk(min(block, len(alive)), largest=False).indices
        order.append(alive[gone.flip(0)])
        stay = torch.ones(len(alive), dtype=torch.bool, device=gram.device)
        stay[gone] = False
        rows = torch.linalg.solve(inverse[gone][:, gone], inverse[gone][:, stay])
        weight = weight[:, stay] - weight[:, gone] @ rows
        inverse = inverse[stay][:, stay] - inverse[stay][:, gone] @ rows
        alive = alive[stay]
    return torch.cat(order[::-1])


def _gain(energy: Tensor, diagonal: Tensor, floor: Tensor) -> Tensor:
    """Output energy that a neuron explains; none where it is already explained itself."""
    return torch.where(diagonal > floor, energy / diagonal.clamp_min(floor), torch.zeros_like(energy))


def _greedy(residual: Tensor, cross: Tensor, count: int, floor: Tensor) -> Tensor:
    """The exact greedy choice of ``count`` among few candidates: places in them, int64 [count]."""
    residual, cross = residual.double(), cross.double()
    left = torch.ones(len(residual), dtype=torch.bool, device=residual.device)
    chosen = []
    for _ in range(count):
        score = _gain(cross.square().sum(0), residual.diagonal(), floor.double()).masked_fill(~left, -1)
        j = int(score.argmax())
        chosen.append(j)
        left[j] = False
        if residual[j, j] > floor:
            column = residual[:, j] / residual[j, j].sqrt()
            cross -= torch.outer(cross[:, j] / residual[j, j].sqrt(), column)
            residual -= torch.outer(column, column)
    return torch.tensor(chosen, device=residual.device)


def _deflate(residual: Tensor, cross: Tensor, picked: Tensor, floor: Tensor) -> None:
    """Take what the picked neurons explain out of R and C, in place."""
    kept = picked[residual.diagonal()[picked] > floor]
    if not len(kept):
        return
    factor, _ = cholesky(residual[kept][:, kept].double(), RIDGE)
    columns = torch.linalg.solve_triangular(factor, residual[kept].double(), upper=False).float()
    explained = torch.linalg.solve_triangular(factor, cross[:, kept].T.double(), upper=False).float()
    residual.addmm_(columns.T, columns, alpha=-1)
    cross.addmm_(explained.T, columns, alpha=-1)
    residual.diagonal().clamp_min_(0)
