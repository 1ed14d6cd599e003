"""Rows of clauses over affine forms: how small they can be, without any sweep.

A row A y + B x - c of values y = centre + sum_g eps_g spread_g + delta is at least A centre - c - sum_g |A spread_g| -
|A| error, and what B adds is of the same form, with the symbols of the inputs, which are the first ones of y as well.
Forms count their own roundings, so that the numbers in them are exact; what is rounded here is subtracted here.

requires:   forms of the input and of the output, in either precision
guarantees: rigorous bounds in float64; -inf where something is not finite
"""

from __future__ import annotations

import torch

from verifier.bounding.core.closing import settled
from verifier.bounding.relaxation.bands import FEW
from verifier.bounding.relaxation.form import AffineForm, growth
from verifier.bounding.rows import Conjunction
from verifier.shapes import Float, Int, Tensor


def least_rows(rows: Conjunction, forms: tuple[AffineForm, AffineForm], box: Int[Tensor, " P"]) -> Float[Tensor, "P m"]:
    """The least value of every row; padding has -inf.

    `rows` holds the rows of every pair of a box and a clause, `forms` the input and the output of every box, `box` the
    box of every pair.
    """
    inputs, output = forms
    centre, spread, room, size = _through(rows.A, output, box)
    size = size + rows.c.abs()
    centre = centre - rows.c
    count = rows.A.shape[-1] + len(output.spread)
    if rows.B is not None:
        direct = _through(rows.B, inputs, box)
        spread[:, : direct[1].shape[1]] += direct[1]
        centre, room, size = centre + direct[0], room + direct[2], size + direct[3]
        count += rows.B.shape[-1] + len(inputs.spread)
    lost = 4.0 * growth(count + FEW, torch.float64) * size
    lower = settled(centre - spread.abs().sum(dim=1) - room, lost)
    return lower.masked_fill(~rows.present, -torch.inf)


def _through(
    matrix: Float[Tensor, "P m n"], form: AffineForm, box: Int[Tensor, " P"]
) -> tuple[Float[Tensor, "P m"], Float[Tensor, "P g m"], Float[Tensor, "P m"], Float[Tensor, "P m"]]:
    """Centre, spread and error of a matrix times a form, and the sum of the magnitudes that were added up."""
    centre, radius, error = (part[box].to(torch.float64) for part in (form.centre, form.radius, form.error))
    spread = form.spread[:, box].to(torch.float64).transpose(0, 1)
    columns, sizes = matrix.transpose(1, 2), matrix.abs().transpose(1, 2)
    found = [(part.unsqueeze(1) @ by).squeeze(1) for part, by in ((centre, columns), (error, sizes))]
    size = ((centre.abs() + radius + error).unsqueeze(1) @ sizes).squeeze(1)
    return found[0], spread @ columns, found[1], size
