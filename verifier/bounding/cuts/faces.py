"""Upper faces of ambiguous neurons that cuts bend: z eliminated from Big-M and several Anderson cuts at once.

Weights w0, w1, q_c >= 0 of sum 1 on the constraints

    x <= u z        x <= x_hat - l (1 - z)        x <= (W.I_c) x_in - offset_c + z zc_c

for which z vanishes (w0 u + w1 l + sum_c q_c zc_c = 0) leave x <= w1 (x_hat - l) + sum_c q_c ((W.I_c) x_in - offset_c).
Given q they are w1 = ((1 - Q) u + G) / (u - l) and w0 = 1 - Q - w1, with Q = sum q and G = sum q zc.  Alone, a cut can
have any weight up to some `most`; the variables are shares r_c = q_c / most_c in [0, 1].  The face is linear in them:
the chord of the triangle plus the sum of r_c (most_c (W.I_c) x_in + turn_c x_hat + lift_c).

In floats z does not vanish exactly.  Any weights of sum >= 1 are valid, because every right-hand side is at least
x >= 0; and what is left of z, which is in [0, 1], costs at most its positive part.  So the floats w1 and q are taken
as exact, w0 is rounded up, and the residual is added to the intercept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from verifier.bounding.core.rounding import MARGIN, TINY
from verifier.bounding.core.state import SHARED, State, once
from verifier.bounding.core.sweep import Remainder, Values
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.cuts.balanced import BalancedCut
from verifier.bounding.relaxation.relu import Kinks
from verifier.operators import gamma
from verifier.shapes import Bool, Float, Tensor

ROUNDINGS = 5.0
"""What rounding costs a unit of a cut's multiplier, in slacks of its layer.

Each slack pays for one pass through the layer with its sums.  One is for the multiplier itself, which is rounded; two
are for its passes, which are twice as deep as the layer's own if the mask splits W by signs; one for what the cut adds
to mu, and one for b times that.  Shares of a mixed mask, 1 - s, and their products with ends of boxes and with sums
round a few times more each: slacks are `MARGIN` roundings deeper than a pass.
"""


@dataclass(frozen=True, eq=False)
class CutFace(State):
    """How far one cut can turn the upper faces of a group's kinks; zero where a kink is stable."""

    cut: Cut
    most: Float[Tensor, "D #S a"]
    turn: Float[Tensor, "D #S a"]
    lift: Float[Tensor, "D #S a"]
    up: Float[Tensor, "D #S a"]  # how much of w0 and of w1 the whole share takes away: the larger of them is 1
    down: Float[Tensor, "D #S a"]

    @classmethod
    def of(cls, cut: Cut, kinks: Kinks) -> CutFace:
        low, high = kinks.l_hat, kinks.u_hat
        # w0 >= 0 asks for q up <= 1, and w1 >= 0 for q down <= 1; at least one of the factors is positive.
        up, down = (cut.zc - low) / -low, (high - cut.zc) / high
        most = torch.where(kinks.ambiguous, 1.0 / torch.maximum(up, down), 0.0)
        turn = torch.where(kinks.ambiguous, most * (cut.zc - high) / (high - low), 0.0)
        lift = torch.where(kinks.ambiguous, -turn * low - most * cut.offset, 0.0)
        up, down = (torch.where(kinks.ambiguous, most * side, 0.0) for side in (up, down))
        return cls(cut, most, turn, lift, up, down)

    def gain(self, values: Values, x_hat: Tensor, linear: Tensor) -> Float[Tensor, "D S a"]:
        """What a unit of share adds to the upper face; `linear` is W x_in at the kinks."""
        masked = self.cut.forward(values)
        if self.cut.whole:
            masked = masked.add_(linear, alpha=self.cut.whole)
        return (masked * self.most).addcmul_(self.turn, x_hat).add_(self.lift)


@dataclass(frozen=True, eq=False)
class Face:
    """A chosen upper face: x <= slope x_hat + intercept + sum_c weight_c (W.I_c) x_in."""

    slope: Float[Tensor, "D S a"]
    intercept: Float[Tensor, "D S a"]
    weights: tuple[Float[Tensor, "D S a"], ...]
    shares: tuple[Float[Tensor, "D S a"], ...]
    of: CutFaces
    pulled: list[Float[Tensor, "D S _"]] = field(default_factory=list)  # |W|^T kappa, kept by `charge` if it is learned

    def learned(
        self,
        negative: Float[Tensor, "D S a"],
        values: Values,
        x_hat: Float[Tensor, "D S a"],
        gain: Float[Tensor, "D S a"],
    ) -> Float[Tensor, "D S n"]:
        """What a unit of each share of the mask adds to the bound, where x has the coefficients `negative` <= 0.

        Require: a single cut, of a mixed mask; `gain` is what a unit of its share adds to the face, and the sweep back
        has charged for it.

        The face is its chord plus a share of most (A + (zc - u) z), where A is the cut without z and z the part
        (x_hat - l) / (u - l).  As most falls by -1/l or rises by 1/u, in parts of itself, a unit of zc adds the weight
        of the cut times t, which is z less so many gains.
        """
        (at,), kinks = self.of.cuts, self.of.kinks
        assert isinstance(at.cut, BalancedCut)
        low, high = kinks.l_hat, kinks.u_hat
        less = torch.where(at.up >= at.down, low, high)  # most changes by 1 / this, in parts of itself
        t = (x_hat - low).div_(high - low).addcdiv_(gain, less)
        swing = (negative * self.weights[0]).mul_(t.neg_().add_(0.5))
        swing = torch.where(kinks.ambiguous, swing, 0.0)
        return at.cut.geometry.learned(values, self.pulled, swing)

    def gains(self, values: Values, x_hat: Float[Tensor, "D S a"]) -> tuple[Float[Tensor, "D S a"], ...]:
        """What a unit of each share adds to the face, at given inputs."""
        linear = x_hat - self.of.bias
        return tuple(at.gain(values, x_hat, linear) for at in self.of.cuts)

    def above(
        self, chord: Float[Tensor, "D S a"], values: Values, x_hat: Float[Tensor, "D S a"]
    ) -> tuple[Float[Tensor, "D S a"], tuple[Float[Tensor, "D S a"], ...]]:
        """The face at given inputs, and the gains, given the chord of the triangle, which is overwritten."""
        gains = self.gains(values, x_hat)
        for share, gain in zip(self.shares, gains, strict=True):
            chord.addcmul_(share, gain)
        return chord, gains

    def charge(
        self, negative: Float[Tensor, "D S a"], mu: Float[Tensor, "D S a"], rest: Remainder
    ) -> Float[Tensor, "D S a"]:
        """Add to `rest` the intercept and the cuts, where x has the coefficients `negative` <= 0.

        Cuts that hold a part of W itself need no pass for that part: it is x_hat - b, so it goes to `mu`, which comes
        back as the coefficients of x_hat.
        """
        offset = negative * self.intercept
        rest.value += offset.sum(dim=-1)
        multipliers = [negative * weight for weight in self.weights]
        for beta, at in zip(multipliers, self.of.cuts, strict=True):
            for source, part in self._transposed(at.cut, beta):
                rest.add(source, part)
        if self.of.price is not None:
            rest.summed += offset.abs().sum(dim=-1)
            for beta in multipliers:
                rest.error += (ROUNDINGS * beta.abs() * self.of.price).sum(dim=-1)
        held = [at.cut.whole * beta for beta, at in zip(multipliers, self.of.cuts, strict=True) if at.cut.whole]
        if not held:
            return mu
        extra = torch.stack(held).sum(dim=0) if len(held) > 1 else held[0]
        rest.value -= extra @ self.of.bias
        return mu + extra

    def _transposed(self, cut: Cut, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        if not isinstance(cut, BalancedCut) or not cut.mixed:
            return cut.transpose(beta)
        self.pulled[:] = cut.pulled(beta)
        return cut.signed(self.pulled)


@dataclass(frozen=True, eq=False)
class CutFaces(State):
    """All cuts of one group."""

    kinks: Kinks
    bias: Float[Tensor, " a"] = field(metadata=SHARED)  # of the layer, at the kinks
    cuts: tuple[CutFace, ...]
    price: Float[Tensor, "D 1 a"] | None  # what rounding costs per unit of a multiplier; None in float32

    @classmethod
    def of(cls, cuts: Sequence[Cut], kinks: Kinks, bias: Tensor, slack: Float[Tensor, "D n"] | None) -> CutFaces:
        price = None if slack is None else slack.index_select(-1, kinks.index).unsqueeze(1)
        return cls(
            kinks, bias.index_select(-1, kinks.index), tuple(once(CutFace.of, cut, kinks) for cut in cuts), price
        )

    def face(self, shares: Sequence[Float[Tensor, "D S a"]]) -> Face:
        """Require: shares >= 0; in float32 also that they are feasible.  Guarantee: in float64 a valid face."""
        slope, intercept = self.kinks.upper, self.kinks.intercept
        for share, at in zip(shares, self.cuts, strict=True):
            slope = torch.addcmul(slope, share, at.turn)
            intercept = torch.addcmul(intercept, share, at.lift)
        weights = tuple(share * at.most for share, at in zip(shares, self.cuts, strict=True))
        if self.price is not None:
            slope = slope.clamp(min=0.0)
            intercept = self._valid_intercept(slope, weights, self.price)
        return Face(slope, intercept, weights, tuple(shares), self)

    def _valid_intercept(self, slope: Tensor, weights: tuple[Tensor, ...], price: Tensor) -> Float[Tensor, "D S a"]:
        """The intercept that goes with these weights whatever was rounded, z and the cuts' constants included."""
        kinks, steps = self.kinks, gamma(MARGIN + len(weights))
        total = sum(weights, start=torch.zeros_like(slope))
        rest = (1.0 - total - slope).clamp(min=0.0) + steps * (1.0 + total + slope)
        z = slope * kinks.l_hat + rest * kinks.u_hat
        value = -slope * kinks.l_hat
        size = slope * kinks.l_hat.abs() + rest * kinks.u_hat.abs()
        for weight, at in zip(weights, self.cuts, strict=True):
            z = z + weight * at.cut.zc
            value = value - weight * at.cut.offset
            size = size + weight * (at.cut.zc.abs() + at.cut.offset.abs())
        value = value + z.clamp(min=0.0) + 2.0 * steps * size + 4.0 * total * price + TINY
        return torch.where(kinks.ambiguous, value, 0.0)

    def project(self, shares: Sequence[Float[Tensor, "D S a"]]) -> None:
        """Move shares >= 0 to where w0 and w1 are non-negative, in place."""
        if len(shares) == 1:
            shares[0].clamp_(max=1.0)
        else:
            project(shares, *self._normals())

    def project_direction(
        self, gains: Sequence[Float[Tensor, "D S a"]], shares: Sequence[Float[Tensor, "D S a"]]
    ) -> None:
        """Remove from a gradient what leads out of the feasible shares, in place; a single share needs no such care."""
        if len(shares) > 1:
            project_direction(gains, shares, *self._normals())

    def _normals(self) -> tuple[list[Tensor], list[Tensor]]:
        return [at.up for at in self.cuts], [at.down for at in self.cuts]


# ---------------------------------------------------------------- several shares at one neuron
#
# The shares r of several cuts must leave w0 and w1 non-negative: they live in {r >= 0, up . r <= 1, down . r <= 1}.
# Entries of `up` and `down` are at most 1, and for every cut the larger of both is 1.  The functions below ask for the
# point d nearest to some v with up . d <= b1, down . d <= b2 and some entries non-negative.  With multipliers s, t >= 0
# of the two constraints, d = v - s up - t down, cut off at zero.  For a known set of entries that are not cut off, s
# and t solve a problem of two variables in closed form; s and t tell that set.  This is Newton's method on a piecewise
# quadratic function, and exact after few rounds.
#
# Why gradients are projected too: steps that are scaled entry by entry, like Adam's, stall at the boundary of coupled
# constraints.  Two shares with a fixed sum whose gradients are both positive would take steps of the same length and be
# projected back to where they were, however different the gradients are.  Without it the dual of the root of base-8194
# stays .0027 (two cuts) and .0039 (three cuts) below its linear program, with it .00003 and .00007.

Vector = Sequence[Float[Tensor, "*#batch"]]
"""One tensor per entry: there are few of them."""

MOST_ROUNDS = 6
"""Of Newton's method.  As many rounds as entries have always been enough."""

ACTIVE = 1e-5
"""A constraint holds with equality if no more than this is left."""


def project(r: Vector, up: Vector, down: Vector) -> None:
    """Move r to the nearest feasible point, in place.

    Require: r >= 0.  Guarantee: the constraints hold afterwards, up to rounding.
    """
    outside = _places((_dot(r, up) > 1.0) | (_dot(r, down) > 1.0))
    v, up, down = (outside.taken(side) for side in (r, up, down))
    one = torch.ones_like(v[0])
    found = _nearest(v, (up, down), (one, one), [torch.zeros_like(v[0], dtype=torch.bool)] * len(v))
    scale = torch.maximum(_dot(found, up), _dot(found, down)).clamp_(min=1.0).reciprocal_()
    outside.put(r, [near * scale for near in found])


def project_direction(g: Vector, r: Vector, up: Vector, down: Vector) -> None:
    """Replace the gradient g at the feasible point r by its nearest feasible direction, in place."""
    full = [_dot(r, side) >= 1.0 - ACTIVE for side in (up, down)]
    touched = _places(full[0] | full[1])
    v, r, up, down, full = (touched.taken(side) for side in (g, r, up, down, full))
    bounds = [torch.where(side, 0.0, torch.inf).to(v[0].dtype) for side in full]
    found = _nearest(v, (up, down), (bounds[0], bounds[1]), [x > 0 for x in r])
    touched.put(g, found)


@dataclass(frozen=True, eq=False)
class _Listed:
    """Some of all neurons, as a list: no others are worked on.  Its length is known by waiting for the device."""

    shape: torch.Size
    index: tuple[Tensor, ...]

    def taken(self, vector: Vector) -> list[Tensor]:
        return [entry.expand(self.shape)[self.index] for entry in vector]

    def put(self, target: Vector, values: Vector) -> None:
        for entry, value in zip(target, values, strict=True):
            entry[self.index] = value


@dataclass(frozen=True, eq=False)
class _Marked:
    """Some of all neurons, by marks: all are worked on, and nobody waits."""

    marks: Bool[Tensor, "*batch"]

    def taken(self, vector: Vector) -> list[Tensor]:
        return list(vector)

    def put(self, target: Vector, values: Vector) -> None:
        for entry, value in zip(target, values, strict=True):
            entry.copy_(torch.where(self.marks, value, entry))


def _places(marks: Bool[Tensor, "*batch"]) -> _Listed | _Marked:
    """Where there is something to do: few places as a rule.

    A GPU does the work everywhere in less time than it takes to tell the host how many places there are.
    """
    if marks.device.type == "cpu":
        return _Listed(marks.shape, torch.nonzero(marks, as_tuple=True))
    return _Marked(marks)


def _nearest(
    v: Vector, normals: tuple[Vector, Vector], bounds: tuple[Tensor, Tensor], free: Sequence[Tensor]
) -> list[Tensor]:
    """The nearest d with normals . d <= bounds whose entries are non-negative where they are not free."""
    up, down = normals
    s = t = torch.zeros_like(v[0])
    for _ in range(min(len(v), MOST_ROUNDS)):
        kept = [(_moved(x, s, t, a, b) > 0) | f for x, a, b, f in zip(v, up, down, free, strict=True)]
        active = [[a * on for a, on in zip(side, kept, strict=True)] for side in normals]
        s, t = _multipliers(v, active[0], active[1], bounds)
    found = [_moved(x, s, t, a, b) for x, a, b in zip(v, up, down, strict=True)]
    return [torch.where(f, d, d.clamp(min=0.0)) for d, f in zip(found, free, strict=True)]


def _multipliers(v: Vector, up: Vector, down: Vector, bounds: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """s, t >= 0 for normals that are zero at entries which are cut off."""
    uu, ud, dd = _dot(up, up), _dot(up, down), _dot(down, down)
    over_up, over_down = _dot(v, up) - bounds[0], _dot(v, down) - bounds[1]
    tiny, flat = torch.finfo(uu.dtype).tiny, 16 * torch.finfo(uu.dtype).eps
    only_s, only_t = over_up.clamp(min=0.0) / uu.clamp(min=tiny), over_down.clamp(min=0.0) / dd.clamp(min=tiny)
    first = over_down <= ud * only_s  # with s alone the other constraint holds
    second = over_up <= ud * only_t
    det = torch.maximum(uu * dd - ud * ud, flat * uu * dd).clamp(min=tiny)  # nearly parallel: cancellation
    s = ((over_up * dd - over_down * ud) / det).clamp(min=0.0)
    t = ((over_down * uu - over_up * ud) / det).clamp(min=0.0)
    zero = torch.zeros_like(s)
    s = torch.where(first, only_s, torch.where(second, zero, s))
    t = torch.where(first, zero, torch.where(second, only_t, t))
    return s, t


def _moved(v: Tensor, s: Tensor, t: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return v.addcmul(s, up, value=-1.0).addcmul_(t, down, value=-1.0)


def _dot(first: Vector, second: Vector) -> Tensor:
    total = first[0] * second[0]
    for a, b in zip(first[1:], second[1:], strict=True):
        total = torch.addcmul(total, a, b)
    return total
