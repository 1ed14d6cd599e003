"""Boxes as subproblems: those of the problem with their clauses, and how they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.state import cat
from verifier.bounding.rows import Conjunction
from verifier.property.problem import Problem
from verifier.search.domains import Domains
from verifier.search.journal import Place
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """N root boxes with up to C clauses each.

    `number` names the clause as the property counts them, -1 where there is none; `place` says where its rows are.
    """

    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    clauses: Conjunction
    number: Int[Tensor, "N C"]
    place: Int[Tensor, "N C"]
    moving: Int[Tensor, " m"] | None  # the inputs that move in some box, unless most of them do
    ball: InputBall | None = None  # the part of boxes that counts

    @classmethod
    def of(cls, problem: Problem, clauses: Sequence[int]) -> Table:
        """The given clauses of the problem, with their boxes.  Require: at least one."""
        device = problem.lower.device
        wanted = {k: place for place, k in enumerate(clauses)}
        kept = [(box, [k for k in members if k in wanted]) for box, members in enumerate(problem.clauses_of)]
        kept = [(box, members) for box, members in kept if members]
        boxes = torch.tensor([box for box, _ in kept], device=device)
        most, counts = max(len(members) for _, members in kept), torch.tensor([len(members) for _, members in kept])
        taken = (torch.arange(most) < counts.unsqueeze(1)).to(device)
        number, place = torch.full(taken.shape, -1, device=device), torch.zeros_like(taken, dtype=torch.long)
        flat = [k for _, members in kept for k in members]
        number[taken], place[taken] = (
            torch.tensor(flat, device=device),
            torch.tensor([wanted[k] for k in flat]).to(device),
        )
        rows = Conjunction.of_each(problem, clauses)
        lower, upper = problem.lower[boxes], problem.upper[boxes]
        moving = torch.nonzero(moves(lower, upper).any(dim=0)).flatten()
        few = 2 * len(moving) <= problem.network.n_in
        ball = InputBall.of(problem.property.ball, lower)
        return cls(lower, upper, rows, number, place, moving if few else None, ball)

    @property
    def inputs(self) -> int:
        """How many inputs have symbols in a zonotope."""
        return self.lower.shape[1] if self.moving is None else len(self.moving)

    def rows(self, root: Int[Tensor, " P"], clause: Int[Tensor, " P"]) -> Conjunction:
        """The rows of clauses, each given by its root box and its place there."""
        return self.clauses.select(self.place[root, clause])


@dataclass(frozen=True, eq=False)
class BoxDomains(Domains):
    """Parts of root boxes.  One box serves all clauses of its root: `pending` marks those that are not closed in it.

    `clause` is the worst of them; `gains` says what a cut across each input is worth, 0 where the input cannot be cut;
    `kinks` counts the ambiguous neurons; `shrunk` marks boxes that clipping has made much smaller since.
    """

    root: Int[Tensor, " D"]
    pending: Bool[Tensor, "D C"]
    low: Float[Tensor, "D n0"]
    high: Float[Tensor, "D n0"]
    gains: Float[Tensor, "D n0"]
    kinks: Int[Tensor, " D"]
    shrunk: Bool[Tensor, " D"]


def halved(boxes: BoxDomains) -> BoxDomains:
    """Both halves of every box, across the input with the largest gain.

    Guarantee: the halves share the cut, so they cover the box.  The gain of the cut input is halved in them.
    Require: every box can be cut somewhere.
    """
    axis = boxes.gains.argmax(dim=1, keepdim=True)
    cut = middle(boxes.low, boxes.high).gather(1, axis)
    gains = boxes.gains.scatter(1, axis, boxes.gains.gather(1, axis) / 2)
    common = (boxes.number, boxes.clause, boxes.lower, boxes.depth + 1, boxes.tier, boxes.root, boxes.pending)
    below = BoxDomains(*common, boxes.low, boxes.high.scatter(1, axis, cut), gains, boxes.kinks, boxes.shrunk)
    above = BoxDomains(*common, boxes.low.scatter(1, axis, cut), boxes.high, gains, boxes.kinks, boxes.shrunk)
    return cat([below, above])


def split(boxes: BoxDomains, wanted: int) -> BoxDomains:
    """Halve every box, and go on until there are at least `wanted` boxes or some box has no input left to cut.

    A box that clipping has shrunk stays whole at first: that is as good as a cut, and leaves one box instead of two.
    """
    whole = boxes.select(boxes.shrunk)
    boxes = cat([replace(whole, depth=whole.depth + 1), halved(boxes.select(~boxes.shrunk))])
    while 0 < len(boxes) < wanted and bool(divisible(boxes).all()):
        boxes = halved(boxes)
    return boxes


def rounded_off(boxes: BoxDomains, ball: InputBall | None) -> BoxDomains:
    """What the ball leaves of boxes.  Those that it does not meet stay as they are."""
    if ball is None:
        return boxes
    low, high, _ = ball.contracted(boxes.low, boxes.high)
    return replace(boxes, low=low, high=high)


def divisible(boxes: BoxDomains) -> Bool[Tensor, " D"]:
    """Which boxes can be cut across the input of the largest gain."""
    axis = boxes.gains.argmax(dim=1, keepdim=True)
    low, high = boxes.low.gather(1, axis), boxes.high.gather(1, axis)
    return moves(low, high).squeeze(1)


def moves(low: Float[Tensor, "D n"], high: Float[Tensor, "D n"]) -> Bool[Tensor, "D n"]:
    """Which inputs can be cut: decimals that are no floats leave two neighbours, between which there is nothing."""
    cut = middle(low, high)
    return (low < cut) & (cut < high)


def middle(low: Float[Tensor, "D n"], high: Float[Tensor, "D n"]) -> Float[Tensor, "D n"]:
    """Between the ends, whatever their size."""
    return low / 2 + high / 2


def moved_ends(parents: BoxDomains, children: BoxDomains) -> list[list[Place]]:
    """Where each child ends earlier than its parent: 0, the input, 1 (-1: from above), and the new end.

    Require: the children still have the numbers of their parents.
    """
    order = parents.number.argsort()
    mine = parents.select(order[torch.searchsorted(parents.number[order], children.number)])
    found: list[list[Place]] = [[] for _ in range(len(children))]
    for side, before, after in ((1, mine.low, children.low), (-1, mine.high, children.high)):
        moved = before != after
        for (child, axis), end in zip(torch.nonzero(moved).tolist(), after[moved].tolist(), strict=True):
            found[child].append((0, axis, side, end))
    return found
