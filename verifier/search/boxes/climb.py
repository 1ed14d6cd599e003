"""Where the bound of a pair of a box and a clause starts from: weights of the clause's rows, then slopes of the ReLUs.

Over a zonotope the least value of a combination w . g is w . centre - sum_g |w . spread_g|, a concave function of w
that costs a few products of small matrices.  Its maximiser need not be exact: any weights give valid bounds, and the
ascent over slopes goes on from them.

On small boxes few neurons are ambiguous, and the right slopes for them are worth more than further cuts.  The dual is
that of a search by signs; which neurons are ambiguous differs from box to box, so the sweeps list all of them.

requires:   a dual over full-width sweeps; any precision, because whatever is found is evaluated again
guarantees: slopes in [0, 1] and weights on the simplex: the best that were met
source:     alpha-CROWN; multipliers on output constraints as in INVPROP, first with the symbols of a zonotope as primal
            variables
"""

from __future__ import annotations

import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.rows import Conjunction, onto_simplex
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.shapes import Float, Int, Tensor

STEPS = Steps(0.25, 0.05)


def best_weights(
    rows: Conjunction, forms: tuple[AffineForm, AffineForm], box: Int[Tensor, " P"], steps: int
) -> Float[Tensor, "P m"]:
    """Weights on the simplex of each pair's rows.

    `rows` holds the rows of every pair of a box and a clause, `forms` the input and the output of every box, `box` the
    box of every pair; all in one precision.
    """
    weights = rows.even().squeeze(1)
    if rows.c.shape[1] == 1 or not steps:
        return weights
    return _climbed(*_rows_as_forms(rows, forms, box), rows.present, weights, steps)


def _rows_as_forms(rows: Conjunction, forms: tuple[AffineForm, AffineForm], box: Tensor) -> tuple[Tensor, Tensor]:
    """Centre [P, m] and spread [P, g, m] of every row."""
    inputs, output = forms
    A = rows.A.transpose(1, 2)
    centre = (output.centre[box].unsqueeze(1) @ A).squeeze(1) - rows.c
    spread = output.spread.transpose(0, 1)[box] @ A
    if rows.B is not None:
        B = rows.B.transpose(1, 2)
        centre = centre + (inputs.centre[box].unsqueeze(1) @ B).squeeze(1)
        spread[:, : len(inputs.spread)] += inputs.spread.transpose(0, 1)[box] @ B
    return centre, spread


def _climbed(centre: Tensor, spread: Tensor, present: Tensor, weights: Tensor, steps: int) -> Float[Tensor, "P m"]:
    """Normalised supergradient steps from equal weights; the best of all iterates and of all single rows is kept."""
    alone = (centre - spread.abs().sum(dim=1)).masked_fill(~present, -torch.inf)
    value, row = alone.max(dim=-1)
    best = torch.nn.functional.one_hot(row, centre.shape[1]).to(weights.dtype) * present
    for t in range(steps):
        along = (spread @ weights.unsqueeze(-1)).squeeze(-1)  # P g
        reached = (weights * centre).sum(dim=-1) - along.abs().sum(dim=-1)
        better = reached > value
        value = torch.where(better, reached, value)
        best = torch.where(better.unsqueeze(-1), weights, best)
        gradient = (centre - (along.sign().unsqueeze(1) @ spread).squeeze(1)) * present
        gradient = gradient - gradient.sum(dim=-1, keepdim=True) / present.sum(dim=-1, keepdim=True).clamp(min=1)
        size = (gradient * present).abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
        step = 0.5 / (t + 1) ** 0.7
        weights = onto_simplex((weights + step * gradient / size).unsqueeze(1), present.unsqueeze(1)).squeeze(1)
    return best


def climb(dual: ConjunctionDual, weights: Float[Tensor, "P 1 m"], steps: int) -> Float[Tensor, "P 1 V"]:
    """Maximise from the better of two starts; pairs whose bound is positive stop there."""
    parallel, adaptive = starts(dual, weights)
    value, other = dual.evaluate(parallel).lower, dual.evaluate(adaptive).lower
    best = torch.where((other > value).unsqueeze(-1), adaptive, parallel)
    rest = torch.nonzero(~(torch.maximum(value, other) > 0).squeeze(1)).flatten()
    if not steps or not len(rest):
        return best
    ascent = Ascent(steps, STEPS)
    if len(rest) == len(best):
        return ascent.run(dual, best, Until()).point
    return best.index_copy(0, rest, ascent.run(dual.select(rest), best[rest], Until()).point)


def starts(
    dual: ConjunctionDual, weights: Float[Tensor, "P 1 m"]
) -> tuple[Float[Tensor, "P 1 V"], Float[Tensor, "P 1 V"]]:
    """Slopes parallel to the upper faces, and CROWN's."""
    kinks = dual.slopes.sweep.neurons
    parallel = torch.cat([*(k.parallel() for k in kinks), weights], dim=-1)
    return parallel, torch.cat([*(k.adaptive() for k in kinks), weights], dim=-1)
