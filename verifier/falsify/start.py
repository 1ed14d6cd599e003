"""Where to begin: which clauses look promising, and from which points of their boxes."""

from __future__ import annotations

import torch

from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor

SOBOL_AXES = 32
"""Up to so many inputs that can move a low-discrepancy sequence covers the box better than independent points."""


def rank(target: Target, until: Clock) -> Int[Tensor, " clauses"]:
    """All clauses, the one with the lowest margin at the centre of its box first."""
    boxes = target.lower.shape[0]
    y = target.lower.new_zeros(boxes, target.network.n_out)
    centre = middle(target.lower, target.upper)
    for part in torch.arange(boxes, device=target.device).split(target.points_in_memory):
        if until.expired():
            break
        y[part] = target.network.forward(centre[part])
    worst = target.lower.new_zeros(target.clauses)
    for part in torch.arange(target.clauses, device=target.device).split(target.points_in_memory):
        box = target.box[part]
        worst[part] = target.rows.margins(centre[box], y[box], part).amax(-1)
    return torch.argsort(worst.nan_to_num(nan=torch.inf), stable=True)


def middle(lower: Float[Tensor, "P n0"], upper: Float[Tensor, "P n0"]) -> Float[Tensor, "P n0"]:
    """The centres of boxes; halved first, so that wide boxes do not overflow."""
    return (lower / 2 + upper / 2).clamp(lower, upper)


def scatter(
    lower: Float[Tensor, "N n0"], upper: Float[Tensor, "N n0"], count: int, generator: torch.Generator
) -> Float[Tensor, "N count n0"]:
    """Points of each box: the centre, then three inner points for every corner.

    The same inner points, relative to the box, serve all boxes.  They are drawn in main memory: a seed means the
    same on all devices.
    """
    axes, device = lower.shape[1], lower.device
    corners = (count - 1) // 4
    inner = count - 1 - corners
    moving = torch.nonzero((upper > lower).any(0)).flatten()
    if inner and 0 < len(moving) <= SOBOL_AXES:
        share = torch.full((inner, axes), 0.5, device=device)
        seed = int(torch.randint(2**31, (), generator=generator))
        engine = torch.quasirandom.SobolEngine(len(moving), scramble=True, seed=seed)
        share[:, moving] = engine.draw(inner).to(device)
    else:
        share = torch.rand(inner, axes, generator=generator).to(device)
    sides = torch.randint(2, (corners, axes), generator=generator, dtype=share.dtype).to(device)
    share = torch.cat([share.new_full((1, axes), 0.5), share, sides])
    low, high = lower[:, None], upper[:, None]
    return ((1 - share) * low + share * high).clamp(low, high)


def sample(
    target: Target, clause: Int[Tensor, " C"], count: int, generator: torch.Generator
) -> tuple[Float[Tensor, "C count n0"], Float[Tensor, "C count"]]:
    """Points of the clauses' boxes, and the worst margin of the clause at each; NaN counts as infinite.

    The network is evaluated once per box, however many clauses share it.
    """
    boxes, place = target.box[clause].unique(return_inverse=True)
    x = scatter(target.lower[boxes], target.upper[boxes], count, generator)
    if target.ball is not None:
        x = target.ball.pulled(x)
    flat = x.flatten(0, 1)
    y = torch.cat([target.network.forward(part) for part in flat.split(target.points_in_memory)])
    y = y.reshape(*x.shape[:-1], -1)
    worst = target.rows.margins(x[place], y[place], clause).amax(-1)
    return x[place], worst.nan_to_num(nan=torch.inf)


def corner(target: Target, clause: Int[Tensor, " C"]) -> Float[Tensor, "C n0"]:
    """The corner of each clause's box, or the point of its part in the ball, that is best to first order, seen from the
    centre.
    """
    lower, upper = target.bounds(clause)
    centre = middle(lower, upper)
    _, gradient = target.slope(centre, clause)
    if target.ball is not None:
        return centre + target.room(clause).way(centre, gradient)
    return torch.where(gradient > 0, lower, torch.where(gradient < 0, upper, centre))


def starts(
    target: Target, clause: Int[Tensor, " C"], count: int, restarts: int, generator: torch.Generator
) -> tuple[Counterexample | None, Float[Tensor, "C restarts n0"]]:
    """The witness among `count` sample points of each clause if there is one, and points to descend from.

    The first of them is the corner that the gradient at the centre points to.  Half of the others are the best
    samples, the rest are random ones.
    """
    x, worst = sample(target, clause, max(count, restarts), generator)
    flat_clause = clause[:, None].expand_as(worst).flatten()
    witness = target.replay(x.flatten(0, 1), worst.flatten(), flat_clause)
    best = torch.argsort(worst, dim=1, stable=True)
    chosen = restarts // 2
    others = torch.randperm(best.shape[1] - chosen, generator=generator).to(target.device)
    picked = torch.cat([best[:, :chosen], best[:, chosen + others[: restarts - 1 - chosen]]], dim=1)
    samples = x.gather(1, picked[..., None].expand(-1, -1, x.shape[-1]))
    return witness, torch.cat([corner(target, clause)[:, None], samples], dim=1)
