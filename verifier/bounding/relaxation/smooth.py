"""Groups that are no ReLUs: lines below and above functions of one number, planes below and above products.

Each neuron has one variable in [0, 1], which moves the slopes of its faces: 1/2 stands for the faces that cut off
least, 0 and 1 for the ends of what is worth trying.  Whatever the slopes are, the offset is a rigorous extremum of what
they leave over (`verifier.functions`), so every choice is valid.  With r the coefficient of x in a sweep, the faces add
r (a t + h(a)); a unit of a adds r (t - t*), where t* is the point at which the face touches.

requires:   bounds of the group's pre-activations
guarantees: faces that are valid on them; in float64 with all errors, and no number where the function is not defined
source:     CROWN and alpha-CROWN for general functions; McCormick's envelopes of products
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.state import State
from verifier.functions.base import Scalar
from verifier.functions.product import PRODUCT
from verifier.shapes import Bool, Float, Int, Tensor

if TYPE_CHECKING:
    from verifier.bounding.core.sweep import Choice, Remainder, Taken, Values

MIDDLE = 0.1
"""What the gap in the middle of an interval counts, when the loss at a point is asked for."""


@dataclass(frozen=True, eq=False)
class Lines(State):
    """The faces that a sweep took at each neuron: x is at least (or at most) slopes . t + offset.

    `rates` say how fast the slopes move with the neuron's variable, `touch` is where the face meets the function.
    """

    slopes: tuple[Float[Tensor, "D S n"], ...]
    offset: Float[Tensor, "D S n"]
    touch: tuple[Float[Tensor, "D S n"], ...]
    rates: tuple[Float[Tensor, "D S n"], ...]

    def where(self, mine: Bool[Tensor, "D S n"], other: Lines) -> Lines:
        """These faces where `mine`, the other ones elsewhere."""

        def pick(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(torch.where(mine, *pair) for pair in zip(a, b, strict=True))

        (offset,) = pick((self.offset,), (other.offset,))
        return Lines(
            pick(self.slopes, other.slopes), offset, pick(self.touch, other.touch), pick(self.rates, other.rates)
        )


@dataclass(frozen=True, eq=False)
class Smooth(State):
    """All neurons of one group that is not one of ReLUs.  Each counts, so nothing is gathered or scattered."""

    l_hat: Float[Tensor, "D 1 n_hat"]
    u_hat: Float[Tensor, "D 1 n_hat"]

    @abstractmethod
    def lines(self, variable: Float[Tensor, "#D #S n"], side: Float[Tensor, "#D #S n"] | float) -> Lines:
        """Faces below the function where `side` is 1, above it where it is -1."""

    @abstractmethod
    def value(self, t: Float[Tensor, "*axes n_hat"]) -> Float[Tensor, "*axes n"]:
        """The function itself."""

    @property
    @abstractmethod
    def arity(self) -> int:
        """Entries of x_hat of each neuron."""

    @property
    def count(self) -> int:
        """Neurons, each with one variable."""
        return self.l_hat.shape[-1] // self.arity

    @property
    def entries(self) -> int:
        """Entries of x_hat that a branch can split."""
        return self.l_hat.shape[-1]

    @property
    @abstractmethod
    def pace(self) -> float:
        """How large the steps of its variables are, compared with those of ReLUs."""

    @property
    def least_split(self) -> float:
        """Multipliers of bounds have any sign: positive ones price the lower bound, negative ones the upper bound."""
        return -torch.inf

    @property
    def open(self) -> Bool[Tensor, "D n_hat"]:
        """Which entries a split would help."""
        return (self.l_hat < self.u_hat).squeeze(1)

    @property
    def index(self) -> Int[Tensor, " n_hat"]:
        return torch.arange(self.l_hat.shape[-1], device=self.l_hat.device)

    @property
    def ambiguous(self) -> Bool[Tensor, "D 1 n"]:
        """Neurons that are not constant."""
        parts = (self.l_hat < self.u_hat).chunk(self.arity, dim=-1)
        return torch.stack(parts).any(dim=0)

    def gather(self, vector: Float[Tensor, "*axes n"]) -> Float[Tensor, "*axes n"]:
        return vector

    def scatter(self, vector: Float[Tensor, "*axes n"], at_kinks: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
        return at_kinks

    def faces(self, variable: Float[Tensor, "#D #S n"]) -> Float[Tensor, "#D #S n"]:
        return variable

    def adaptive(self) -> Float[Tensor, "D 1 n"]:
        """The faces that cut off least."""
        return self.l_hat.new_full((len(self.l_hat), 1, self.count), 0.5)

    def parallel(self) -> Float[Tensor, "D 1 n"]:
        return self.adaptive()

    def relax(
        self, lam: Float[Tensor, "D S n"], choice: Choice, rest: Remainder, priced: bool
    ) -> tuple[Float[Tensor, "D S n_hat"], Float[Tensor, "D S n"], Lines | None]:
        """The coefficients of x_hat, those of x, and the faces that their signs ask for."""
        below = lam >= 0
        if choice.slope.shape[1] < lam.shape[1]:  # the same for all objectives
            faces = self.lines(choice.slope, 1.0).where(below, self.lines(choice.slope, -1.0))
        else:
            faces = self.lines(choice.slope, torch.where(below, 1.0, -1.0).to(lam.dtype))
        terms = torch.where(lam == 0, 0.0, lam * faces.offset)
        rest.value += terms.sum(dim=-1)
        if priced:
            rest.summed += terms.abs().sum(dim=-1)
        mu = torch.cat([lam * slope for slope in faces.slopes], dim=-1)
        return mu if choice.split is None else self._priced(mu, choice.split, rest, priced), lam, faces

    def pressed(
        self, lam: Float[Tensor, "D S n"], choice: Choice, rest: Remainder, priced: bool
    ) -> Float[Tensor, "D S n_hat"]:
        """The coefficients of x_hat alone, if all objectives have the same faces: with less than half the memory moved.

        Where some face is not finite, or there are multipliers of splits, it is what `relax` gives.
        """
        low, high = self.lines(choice.slope, 1.0), self.lines(choice.slope, -1.0)
        numbers = (low.offset, high.offset, *low.slopes, *high.slopes)
        if choice.split is not None or not all(bool(torch.isfinite(x).all()) for x in numbers):
            return self.relax(lam, choice, rest, priced)[0]
        positive = lam.clamp(min=0)
        negative = lam - positive  # one of both is zero, so nothing is rounded
        rest.value += _along(positive, low.offset) + _along(negative, high.offset)
        if priced:
            rest.summed += _along(positive, low.offset.abs()) - _along(negative, high.offset.abs())
        mu = lam.new_empty(*lam.shape[:-1], self.arity * lam.shape[-1])
        for part, below, above in zip(mu.chunk(self.arity, dim=-1), low.slopes, high.slopes, strict=True):
            torch.mul(positive, below, out=part)
            part.addcmul_(negative, above)
        return mu

    def _priced(
        self, mu: Float[Tensor, "D S n_hat"], split: Float[Tensor, "#D #S n_hat"], rest: Remainder, priced: bool
    ) -> Float[Tensor, "D S n_hat"]:
        """mu t = (mu - s) t + s t, and s t is at least s l or, where s < 0, s u."""
        ends = torch.where(split > 0, self.l_hat, self.u_hat)
        terms = torch.where(split == 0, 0.0, split * ends)
        rest.value += terms.sum(dim=-1)
        if priced:
            # The product in mu was rounded, and so is the difference; both may be larger than what is left.
            reach = torch.maximum(self.l_hat.abs(), self.u_hat.abs())
            size = mu.abs() + split.abs()
            rest.summed += torch.where(size == 0, 0.0, size * reach).sum(dim=-1)
        return mu - split

    def activate(
        self, x_hat: Float[Tensor, "D S n_hat"], values: Values, taken: Taken
    ) -> tuple[Float[Tensor, "D S n"], None]:
        """x on the faces that a sweep took; there are no cuts."""
        assert taken.faces is not None
        x = taken.faces.offset
        for slope, t in zip(taken.faces.slopes, x_hat.chunk(self.arity, dim=-1), strict=True):
            x = torch.addcmul(x, slope, t)
        return x, None

    def gains(self, x_hat: Float[Tensor, "D S n_hat"], taken: Taken) -> Float[Tensor, "D S n"]:
        """What a unit of each variable adds to the bound."""
        assert taken.faces is not None
        found = torch.zeros_like(taken.lam)
        parts = zip(x_hat.chunk(self.arity, dim=-1), taken.faces.touch, taken.faces.rates, strict=True)
        for t, touch, rate in parts:
            found = found + (t - touch) * rate
        return (taken.lam * found).nan_to_num(0.0, 0.0, 0.0)

    def cost(
        self, lam: Float[Tensor, "D S n"], faces: Lines, x_hat: Float[Tensor, "D #S n_hat"]
    ) -> Float[Tensor, "D S"]:
        """What the faces cost each objective at a point."""
        gap = self.value(x_hat) - faces.offset
        for slope, t in zip(faces.slopes, x_hat.chunk(self.arity, dim=-1), strict=True):
            gap = gap - slope * t
        return (lam * gap).sum(dim=-1)

    def split_gains(
        self, x_hat: Float[Tensor, "D S n_hat"], split: Float[Tensor, "D S n_hat"]
    ) -> Float[Tensor, "D S n_hat"]:
        """What a unit of each multiplier of a bound adds; at zero, only if x_hat is beyond the bound."""
        nearest = torch.minimum(torch.maximum(x_hat, self.l_hat), self.u_hat)
        ends = torch.where(split > 0, self.l_hat, torch.where(split < 0, self.u_hat, nearest))
        return (ends - x_hat).nan_to_num(0.0, 0.0, 0.0)

    def losses(
        self, lam: Float[Tensor, "D S n"] | None, faces: Lines | None, point: Callable[[], Float[Tensor, "D n_hat"]]
    ) -> tuple[Float[Tensor, "D n_hat"], Float[Tensor, "D n_hat"]]:
        """What the faces cost the first objective at a point, and how far they are from the function on average.

        Each entry of a neuron's x_hat can be split, so each is told the loss of the neuron.  The gap in the middle
        counts a little as well: a point outside of the bounds is moved to an end, where faces often touch.
        """
        if lam is None or faces is None:
            nothing = torch.zeros_like(self.l_hat[:, 0])
            return nothing, nothing
        low, high = self.l_hat[:, 0], self.u_hat[:, 0]
        gap = self._gap(faces, (low + high) / 2)
        there = self._gap(faces, torch.minimum(torch.maximum(point(), low), high))
        return lam[:, 0].abs().repeat(1, self.arity) * (there + MIDDLE * gap), gap

    def _gap(self, faces: Lines, t: Float[Tensor, "D n_hat"]) -> Float[Tensor, "D n_hat"]:
        """How far the faces of the first objective are from the function at a point, for each entry of x_hat."""
        face = faces.offset[:, 0]
        for slope, part in zip(faces.slopes, t.chunk(self.arity, dim=-1), strict=True):
            face = torch.addcmul(face, slope[:, 0], part)
        return (self.value(t) - face).abs().nan_to_num(0.0, 0.0, 0.0).repeat(1, self.arity)


def _along(rows: Float[Tensor, "D S n"], vector: Float[Tensor, "D 1 n"]) -> Float[Tensor, "D S"]:
    """The inner product of every row with its region's vector."""
    return (rows @ vector.mT).squeeze(-1)


@dataclass(frozen=True, eq=False)
class Fan(State):
    """Slopes of lines on one side of a function: the least, the one that cuts off least, the largest."""

    least: Float[Tensor, "D 1 n"]
    middle: Float[Tensor, "D 1 n"]
    most: Float[Tensor, "D 1 n"]

    def at(self, variable: Float[Tensor, "#D #S n"]) -> tuple[Float[Tensor, "D #S n"], Float[Tensor, "D #S n"]]:
        """The slope, and how fast it moves with the variable."""
        rate = 2 * torch.where(variable < 0.5, self.middle - self.least, self.most - self.middle)
        return self.middle + (variable - 0.5) * rate, rate


@dataclass(frozen=True, eq=False)
class Curves(Smooth):
    """A function of one number at each neuron."""

    function: Scalar
    below: Fan
    above: Fan

    arity = 1
    pace = 0.25

    @classmethod
    def of(cls, region: Region, k: int) -> Curves:
        function = region.functions[k - 1]
        assert isinstance(function, Scalar)
        low, high = region.l_hat[k - 1].unsqueeze(1), region.u_hat[k - 1].unsqueeze(1)
        fans = [Fan(*function.fan(low, high, side)) for side in (1.0, -1.0)]
        return cls(low, high, function, *fans)

    def value(self, t: Float[Tensor, "*axes n"]) -> Float[Tensor, "*axes n"]:
        return self.function.value(t)

    def lines(self, variable: Float[Tensor, "#D #S n"], side: Float[Tensor, "#D #S n"] | float) -> Lines:
        (low, low_rate), (high, high_rate) = self.below.at(variable), self.above.at(variable)
        lower = torch.as_tensor(side, device=low.device) > 0
        slope, rate = torch.where(lower, low, high), torch.where(lower, low_rate, high_rate)
        found = self.function.line(slope, self.l_hat, self.u_hat, side)
        return Lines((slope,), found.offset, (found.touch,), (rate,))


@dataclass(frozen=True, eq=False)
class Products(Smooth):
    """A product at each neuron; the variable mixes McCormick's two faces on either side."""

    arity = 2
    pace = 1.0

    @classmethod
    def of(cls, region: Region, k: int) -> Products:
        return cls(region.l_hat[k - 1].unsqueeze(1), region.u_hat[k - 1].unsqueeze(1))

    def value(self, t: Float[Tensor, "*axes n_hat"]) -> Float[Tensor, "*axes n"]:
        return PRODUCT.value(t)

    def lines(self, variable: Float[Tensor, "#D #S n"], side: Float[Tensor, "#D #S n"] | float) -> Lines:
        (l_s, l_t), (u_s, u_t) = self.l_hat.chunk(2, dim=-1), self.u_hat.chunk(2, dim=-1)
        below = torch.as_tensor(side, device=l_s.device) > 0
        w_s, w_t = u_s - l_s, u_t - l_t
        a = l_t + variable * w_t
        c = torch.where(below, l_s + variable * w_s, u_s - variable * w_s)
        offset = PRODUCT.beyond((a, c), (l_s, l_t), (u_s, u_t), side)
        # Both corners at which such a face touches move it alike.
        touch = (l_s.expand_as(offset), torch.where(below, u_t, l_t).expand_as(offset))
        return Lines((a.expand_as(offset), c), offset, touch, (w_t.expand_as(offset), side * w_s.expand_as(offset)))
