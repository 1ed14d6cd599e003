"""The instance under attack: in the precision of the network, on one device, all clauses in one table."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.ball import InputBall
from verifier.falsify.real import RealArithmetic
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.property.property import Property
from verifier.result.counterexample import Counterexample, Judge, Reserve, Runnable, precision, replay
from verifier.shapes import Bool, Float, Int, Tensor

MEMORY = 32 * 2**20
"""Bytes that the activations and rows of one batch of points may take.  Larger batches are no faster on a CPU."""

REPLAYS = 8
"""Points that are handed to the original network at a time."""

INWARD = 8.0
"""Roundings, as shares of a ball's radius, that are left to points: moving these inside for certain costs little."""

NOISE = 2.0**-21
"""Relative rounding noise that is granted to a float32 margin before a point is ruled out: about four units."""


@dataclass(frozen=True, eq=False)
class RowTable:
    """The rows g = A y + B x - c of all clauses, one below the other, and where each clause finds its own.

    `index[i]` lists the rows of clause i; it is padded with repetitions of the first one, which `own` marks as
    false: the largest margin does not change by them.
    """

    A: Float[Tensor, "rows n_y"]
    B: Float[Tensor, "rows n0"] | None
    c: Float[Tensor, " rows"]
    index: Int[Tensor, "clauses m"]
    own: Bool[Tensor, "clauses m"]

    @classmethod
    def of(cls, prop: Property, dtype: torch.dtype = torch.float32) -> RowTable:
        """All rows of a property; `B` is kept only if some clause has input rows."""
        rows = [clause.rows for clause in prop.clauses]
        # A clause without rows gets the row 0 <= 0, which always holds.
        A = np.concatenate([r.A if len(r) else np.zeros((1, prop.n_y)) for r in rows])
        c = np.concatenate([r.c if len(r) else np.zeros(1) for r in rows])
        B = None
        if any(r.B is not None for r in rows):
            B = np.concatenate([np.zeros((max(1, len(r)), prop.n_x)) if r.B is None else r.B for r in rows])
        index, own = _padded([max(1, len(r)) for r in rows])
        return cls(_tensor(A, dtype), None if B is None else _tensor(B, dtype), _tensor(c, dtype), index, own)

    def to(self, device: torch.device | str | None) -> RowTable:
        B = None if self.B is None else self.B.to(device)
        parts = (self.A.to(device), B, self.c.to(device), self.index.to(device), self.own.to(device))
        return RowTable(*parts)

    def margins(
        self, x: Float[Tensor, "P *s n0"], y: Float[Tensor, "P *s n_y"], clause: Int[Tensor, " P"]
    ) -> Float[Tensor, "P *s m"]:
        """g of every row of the point's clause; padding repeats the first row."""
        rows = self.index[clause]
        c = self.c[rows]
        g = _products(self.A[rows], y)
        if self.B is not None:
            g = g + _products(self.B[rows], x)
        return g - c.reshape(len(c), *[1] * (g.dim() - 2), c.shape[-1])

    def noise(self, y: Float[Tensor, "P n_y"], clause: Int[Tensor, " P"]) -> Float[Tensor, " P"]:
        """How large the largest margin of a point may be while the true one is zero or below."""
        rows = self.index[clause]
        return NOISE * (_products(self.A[rows].abs(), y.abs()) + self.c[rows].abs()).amax(-1)

    def pull(
        self, weight: Float[Tensor, "P m"], clause: Int[Tensor, " P"]
    ) -> tuple[Float[Tensor, "P n_y"], Float[Tensor, "P n0"] | None]:
        """The gradients of sum_i weight_i g_i with respect to y, and to x directly (None: zero)."""
        rows = self.index[clause]
        by_output = torch.einsum("pm,pmy->py", weight, self.A[rows])
        return by_output, None if self.B is None else torch.einsum("pm,pmx->px", weight, self.B[rows])


@dataclass(frozen=True, eq=False)
class Room:
    """Where points may be: each in a box of its own and, if there is one, in the ball."""

    lower: Float[Tensor, "P n0"]
    upper: Float[Tensor, "P n0"]
    ball: InputBall | None = None

    @functools.cached_property
    def width(self) -> Float[Tensor, "P n0"]:
        return (self.upper - self.lower).clamp(max=torch.finfo(self.lower.dtype).max)

    def inside(self, x: Float[Tensor, "P n0"]) -> Float[Tensor, "P n0"]:
        """Points moved into their box, and into the ball."""
        x = x.clamp(self.lower, self.upper)
        return x if self.ball is None else self.ball.pulled(x).clamp(self.lower, self.upper)

    def way(self, x: Float[Tensor, "P n0"], gradient: Float[Tensor, "P n0"]) -> Float[Tensor, "P n0"]:
        """From each point to where its gradient is least over the part of the box in the ball.  Require: a ball."""
        assert self.ball is not None
        return self.ball.share(gradient.unsqueeze(1), self.lower, self.upper)[1].squeeze(1) - x


@dataclass(frozen=True, eq=False)
class Target:
    """The instance under attack.

    `network` is a copy in float32, or in float64 if that is what the original network runs in.  `lower` and `upper`
    are the boxes rounded inward to that precision, so every such float between them is a point of the property's box
    (or, where a box holds none at all, one next to it).  `box[i]` is the box of clause i.  The original network and the
    property are there to judge, and so is real arithmetic; what only the former confirms goes to the `reserve`.
    """

    network: Network
    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    box: Int[Tensor, " clauses"]
    rows: RowTable
    model: Runnable
    prop: Property
    judge: Judge
    reserve: Reserve
    ball: InputBall | None = None  # in which points are looked for: a little smaller than that of the property

    @classmethod
    def of(cls, problem: Problem, model: Runnable, device: torch.device | str = "cpu") -> Target:
        """Copies what the attack needs to `device`.  Require: at least one clause."""
        prop, dtype = problem.property, torch.float64 if precision(model) == np.float64 else torch.float32
        box = torch.tensor([clause.box for clause in prop.clauses], dtype=torch.long, device=device)
        network = problem.network.to(device, dtype)
        lower, upper = (_tensor(end, dtype).to(device) for end in prop.boxes.ends(precision(model)))
        stated = problem.original()
        on_cpu = stated.network if problem.lower.device.type == "cpu" else stated.network.to("cpu")
        rows, real = RowTable.of(prop, dtype).to(device), RealArithmetic(on_cpu, stated.property)
        ball = InputBall.of(prop.ball, lower)
        inner = None if ball is None else replace(ball, radius=ball.radius * (1.0 - INWARD * torch.finfo(dtype).eps))
        return cls(network, lower, upper, box, rows, model, stated.property, real.confirms, Reserve(), inner)

    @property
    def dtype(self) -> torch.dtype:
        return self.lower.dtype

    @property
    def device(self) -> torch.device:
        return self.lower.device

    @property
    def clauses(self) -> int:
        return len(self.box)

    @functools.cached_property
    def traffic(self) -> int:
        """Numbers that one forward pass at one point reads and writes, roughly."""
        return sum(term.n_in + term.n_out for layer in self.network.layers for _, term in layer.terms)

    @functools.cached_property
    def points_in_memory(self) -> int:
        """How many points may be evaluated together."""
        rows = self.rows.index.shape[1] * (self.network.n_out + (0 if self.rows.B is None else self.network.n_in))
        floats = 4 * self.network.n_in + 2 * sum(group.size for group in self.network.groups) + rows
        return max(1, MEMORY // (4 * floats))

    def slope(
        self, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"]
    ) -> tuple[Float[Tensor, " P"], Float[Tensor, "P n0"]]:
        """The worst margin of each point's clause, and the gradient of the clause's violation."""
        x_hat = self.network.preactivations(x)
        g = self.rows.margins(x, x_hat[-1], clause)
        by_output, direct = self.rows.pull(violation(g, self.rows.own[clause]), clause)
        gradient = self.network.vjp(x_hat, by_output)
        return g.amax(-1), (gradient if direct is None else gradient + direct).nan_to_num(0.0)

    def bounds(self, clause: Int[Tensor, " P"]) -> tuple[Float[Tensor, "P n0"], Float[Tensor, "P n0"]]:
        """The boxes of some clauses."""
        box = self.box[clause]
        return self.lower[box], self.upper[box]

    def room(self, clause: Int[Tensor, " P"]) -> Room:
        """The input sets of some clauses."""
        return Room(*self.bounds(clause), self.ball)

    def replay(
        self,
        x: Float[Tensor, "P n0"],
        worst: Float[Tensor, " P"],
        clause: Int[Tensor, " P"],
        limit: Tensor | float = 0.0,
    ) -> Counterexample | None:
        """Lets the original network judge the most promising of the points whose worst margin is within `limit`.

        Points at which floats overflow come last: only the network itself can tell.
        Guarantees: at most `REPLAYS` points are run; what is returned is confirmed by the original network and by real
        arithmetic.  A counterexample of the former alone goes to the reserve; once there is one, only a point that is
        better can be of use, and a single one is run.
        """
        most = REPLAYS if self.reserve.found() is None else 1
        promising = torch.nonzero((worst <= limit) | ~torch.isfinite(worst)).flatten()
        if len(promising) > most:
            promising = promising[torch.topk(worst[promising], most, largest=False).indices]
        if not len(promising):
            return None
        boxes = self.box[clause[promising]]
        for box in boxes.unique().tolist():
            points = x[promising[boxes == box]].cpu().numpy()
            witness = replay(_different(points), self.model, self.prop, box, self.judge)
            if witness is not None and witness.sharp:
                return witness
            if witness is not None:
                self.reserve.keep(witness)
        return None


def violation(g: Float[Tensor, "P m"], own: Bool[Tensor, "P m"]) -> Float[Tensor, "P m"]:
    """The derivative of a clause's violation by its margins.

    The violation is the sum of the positive parts, which pulls on all rows that do not hold yet; once all hold it is
    the largest margin, so that the point moves away from the border.
    """
    unmet = (own & (g > 0)).to(g.dtype)
    worst = torch.nn.functional.one_hot(g.argmax(-1), g.shape[-1]).to(g.dtype)
    return torch.where((unmet > 0).any(-1, keepdim=True), unmet, worst)


def _products(matrix: Float[Tensor, "P m k"], vectors: Float[Tensor, "P *s k"]) -> Float[Tensor, "P *s m"]:
    """Each vector times the matrix of its own leading index."""
    if vectors.dim() == 2:  # one vector per matrix
        return torch.bmm(matrix, vectors.unsqueeze(-1)).squeeze(-1)
    return torch.bmm(vectors, matrix.transpose(1, 2))


def _different(points: NDArray[np.floating]) -> NDArray[np.floating]:
    """The points in the same order, each once: in a box that is a point, all are the same."""
    return np.stack(list({point.tobytes(): point for point in points}.values()))


def _tensor(array: NDArray[np.floating], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.array(array)).to(dtype)  # what overflows is infinite: the judge does not use it


def _padded(counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Row numbers of clauses with `counts` rows each, and which of them are not padding."""
    count = torch.tensor(counts, dtype=torch.long)
    first = count.cumsum(0) - count
    place = torch.arange(max(counts)).expand(len(counts), -1)
    own = place < count[:, None]
    return torch.where(own, first[:, None] + place, first[:, None]), own
