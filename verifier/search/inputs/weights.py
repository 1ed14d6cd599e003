"""Which combination of a clause's rows to bound: a quick ascent over the zonotope of the output.

Over a zonotope the least value of a combination w . g is w . centre - sum_g |w . spread_g|, a concave function of w
that costs a few products of small matrices.  Its maximiser need not be exact: any weights give valid bounds.

source: multipliers on output constraints as in INVPROP, here with the symbols of a zonotope as primal variables
"""

from __future__ import annotations

import torch

from verifier.bounding.conjunction import Conjunction, onto_simplex
from verifier.bounding.zonotope import Form
from verifier.shapes import Bool, Float, Tensor


def best_weights(
    rows: Conjunction, own: Bool[Tensor, "D C R"], inputs: Form, output: Form, steps: int
) -> Float[Tensor, "D C R"]:
    """Weights on the simplex of each clause's rows, in the rows' precision; a clause without rows gets zeros."""
    weights = own.to(output.centre.dtype)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1.0)
    if steps and bool((own.sum(dim=-1) > 1).any()):
        weights = _climb(*_rows_as_forms(rows, inputs, output), own, weights, steps)
    return weights.to(rows.c.dtype)


def _rows_as_forms(
    rows: Conjunction, inputs: Form, output: Form
) -> tuple[Float[Tensor, "D 1 R"], Float[Tensor, "D g R"]]:
    """Centre and spread of every row."""
    dtype = output.centre.dtype
    A = rows.A.to(dtype).transpose(1, 2)
    centre = output.centre.unsqueeze(1) @ A - rows.c.to(dtype).unsqueeze(1)
    spread = output.spread.transpose(0, 1) @ A
    if rows.B is not None:
        B = rows.B.to(dtype).transpose(1, 2)
        centre = centre + inputs.centre.unsqueeze(1) @ B
        spread[:, : B.shape[1]] += inputs.spread.transpose(0, 1) @ B
    return centre, spread


def _climb(centre: Tensor, spread: Tensor, own: Tensor, weights: Tensor, steps: int) -> Tensor:
    """Normalised supergradient steps from equal weights; the best of all iterates and of all single rows is kept."""
    alone = (centre - spread.abs().sum(dim=1, keepdim=True)).masked_fill(~own, -torch.inf)  # D C R
    value, row = alone.max(dim=-1)
    best = torch.nn.functional.one_hot(row, own.shape[-1]).to(weights.dtype) * own
    for t in range(steps):
        along = spread @ weights.transpose(1, 2)  # D g C
        reached = (weights * centre).sum(dim=-1) - along.abs().sum(dim=1)
        better = reached > value
        value = torch.where(better, reached, value)
        best = torch.where(better.unsqueeze(-1), weights, best)
        gradient = (centre - along.sign().transpose(1, 2) @ spread) * own
        mean = gradient.sum(dim=-1, keepdim=True) / own.sum(dim=-1, keepdim=True).clamp(min=1)
        gradient = (gradient - mean) * own
        size = gradient.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
        weights = onto_simplex(weights + (0.5 / (t + 1) ** 0.7) * gradient / size, own)
    return best
