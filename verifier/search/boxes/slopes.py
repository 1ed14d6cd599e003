"""A few steps of ascent on the lower slopes of the ReLUs and on the weights of the rows, for many boxes at a time.

On small boxes few neurons are ambiguous, and the right slopes for them are worth more than further cuts.  The dual is
that of a search by signs; which neurons are ambiguous differs from box to box, so the sweeps list all of them.

requires:   a dual over full-width sweeps; any precision, because whatever is found is evaluated again
guarantees: slopes in [0, 1] and weights on the simplex: the best that were met
source:     alpha-CROWN; multipliers on output constraints as in INVPROP
"""

from __future__ import annotations

import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.shapes import Float, Tensor

STEPS = Steps(0.25, 0.05)


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
    kinks = dual.slopes.sweep.kinks
    parallel = torch.cat([*(k.parallel() for k in kinks), weights], dim=-1)
    return parallel, torch.cat([*(k.adaptive() for k in kinks), weights], dim=-1)
