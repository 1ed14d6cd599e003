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

    @property
    @abstractmethod
    def arity(self) -> int:
        """Entries of x_hat of each neuron."""

    @property
    def sign(self) -> None:
        """No signs of theirs are imposed by branches."""
        return None

    @property
    def count(self) -> int:
        """Neurons, each with one variable."""
        return self.l_hat.shape[-1] // self.arity

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

    def scatter(self, vector: Float[Tensor, "*axes n"], at_kinks: Float[Tensor, "D S n"]) -> Float[Tensor, "D S n"]:
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
    ) -> tuple[Float[Tensor, "D S n_hat"], Float[Tensor, "D S n"], Lines]:
        """The coefficients of x_hat, those of x, and the faces that their signs ask for."""
        below = lam >= 0
        if choice.slope.shape[1] == 1:  # the same for all objectives
            faces = self.lines(choice.slope, 1.0).where(below, self.lines(choice.slope, -1.0))
        else:
            faces = self.lines(choice.slope, torch.where(below, 1.0, -1.0).to(lam.dtype))
        terms = torch.where(lam == 0, 0.0, lam * faces.offset)
        rest.value += terms.sum(dim=-1)
        if priced:
            rest.summed += terms.abs().sum(dim=-1)
        return torch.cat([lam * slope for slope in faces.slopes], dim=-1), lam, faces

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

    @classmethod
    def of(cls, region: Region, k: int) -> Curves:
        function = region.functions[k - 1]
        assert isinstance(function, Scalar)
        low, high = region.l_hat[k - 1].unsqueeze(1), region.u_hat[k - 1].unsqueeze(1)
        fans = [Fan(*function.fan(low, high, side)) for side in (1.0, -1.0)]
        return cls(low, high, function, *fans)

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

    @classmethod
    def of(cls, region: Region, k: int) -> Products:
        return cls(region.l_hat[k - 1].unsqueeze(1), region.u_hat[k - 1].unsqueeze(1))

    def lines(self, variable: Float[Tensor, "#D #S n"], side: Float[Tensor, "#D #S n"] | float) -> Lines:
        (l_s, l_t), (u_s, u_t) = self.l_hat.chunk(2, dim=-1), self.u_hat.chunk(2, dim=-1)
        below = torch.as_tensor(side, device=l_s.device) > 0
        a = l_t + variable * (u_t - l_t)
        c = torch.where(below, l_s + variable * (u_s - l_s), u_s - variable * (u_s - l_s))
        least, touch = PRODUCT.below((a, c), (l_s, l_t), (u_s, u_t), torch.as_tensor(side, dtype=a.dtype))
        return Lines((a, c), side * least, touch, (u_t - l_t, side * (u_s - l_s)))
