"""One walk from an objective back to the input, one from the input forward: what all dual bounds share.

Backward, the objective is turned into a linear function of the input that is nowhere larger over the region.  Group
after group is eliminated: its part of the function so far, lam . x[k], is replaced by something below it that is linear
in x_hat[k], mu . x_hat[k] plus a constant; the affine map then takes mu to the group's sources.  How a group is
eliminated is up to the caller (`Eliminate`): by faces of its relaxation, by multipliers, by prices.

Faces are the way that is written out here.  For an ambiguous neuron with l < 0 < u any slope a in [0, 1] gives
x >= a x_hat, and any p >= u / (u - l) gives x <= p (x_hat - l).  So a rounded p is made valid by rounding it up, and no
equality has to hold in floats: what is left are the errors of sums, which `rounding` prices.  A sign that a branch has
imposed enters as a multiplier s >= 0: passing, x >= x_hat - s x_hat; blocking, 0 >= s x_hat.

Forward, the minimiser x0 is completed by values of all groups (`Activate`); they give the supergradients.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from verifier.bounding.core.base import Objective, Region, minimise_over_input, widest
from verifier.bounding.core.closing import settled
from verifier.bounding.core.rounding import MARGIN, layer_slack, source_magnitude
from verifier.bounding.core.state import State
from verifier.bounding.relaxation.neurons import Neurons, neurons_of
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.relaxation.smooth import Lines, Smooth
from verifier.network.network import Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor

__all__ = ["Choice", "Kinks", "Plane", "Remainder", "Route", "Sweep", "Trace", "UpperFace", "dot", "read"]

Values = Sequence[Float[Tensor, "D S _"] | None]
"""x[j] of all sources; None for groups that nobody reads."""


def read(values: Values, source: int) -> Float[Tensor, "D S n"]:
    """The value of a source.  Require: somebody reads it."""
    x = values[source]
    assert x is not None
    return x


@dataclass(eq=False)
class Remainder:
    """What a sweep has made of the objective so far: sum_j lam[j] . x[j] + value, over the sources that are left.

    `summed` is the magnitude of the terms in `value`, `error` what rounding can have cost otherwise.
    """

    lam: list[Float[Tensor, "#D S _"] | None]
    value: Float[Tensor, "D S"]
    summed: Float[Tensor, "D S"]
    error: Float[Tensor, "D S"]

    @classmethod
    def of(cls, objective: Objective, region: Region) -> Remainder:
        """All but the coefficients at the objective's own layer."""
        value = objective.coefficients.new_zeros(region.count, objective.count)
        if objective.constant is not None:
            value += objective.constant
        error = torch.zeros_like(value)
        if objective.error is not None:
            error += objective.error
        if objective.inputs is not None:  # may cancel against the layers' part, so it is priced on its own
            size = objective.inputs.abs().expand(region.count, -1, -1)
            error += gamma(MARGIN) * dot(size, source_magnitude(region, 0))
        lam: list[Tensor | None] = [objective.inputs, *[None] * (objective.layer - 1)]
        return cls(lam, value, value.abs(), error)

    def add(self, source: int, part: Float[Tensor, "D S n"]) -> None:
        """Add to the coefficients of a source."""
        known = self.lam[source]
        self.lam[source] = part if known is None else known + part

    def subtract(self, source: int, part: Float[Tensor, "D S n"]) -> None:
        known = self.lam[source]
        self.lam[source] = -part if known is None else known - part

    def take(self, source: int) -> Float[Tensor, "D S n"] | None:
        """The coefficients of a source, which are to be replaced; None if nobody reads it."""
        own, self.lam[source] = self.lam[source], None
        return own


Eliminate = Callable[[int, Tensor | None, Remainder], Tensor | None]
"""Replaces lam . x[k] in a remainder by mu . x_hat[k] and constants below it: (k, lam, remainder) -> mu.

lam and mu are [D, S, n]; None says that there is nothing to replace, or nothing to go on with.  Constants go to the
remainder, with their rounding errors.
"""

Activate = Callable[[int, Tensor, Values], Tensor]
"""x at the kinks of group k, [D, S, a], given x_hat there and the values of all sources before."""


@dataclass(frozen=True, eq=False)
class Plane(State):
    """A linear function of the input below each objective, slope . x + offset, and its minimiser over the region.

    Guarantee: in float64 offset and lower include all rounding errors, and are finite or -inf.
    """

    slope: Float[Tensor, "D S n0"]
    lower: Float[Tensor, "D S"]  # the least value over the region
    x0: Float[Tensor, "D S n0"]  # where it is attained
    value: Float[Tensor, "D S"]  # the offset as it was computed
    error: Float[Tensor, "D S"] | None  # what rounding can have added to it; None in float32

    def better(self, other: Plane) -> Plane:
        """Of each objective the plane with the larger least value."""
        mine = self.lower >= other.lower
        slope, x0 = (torch.where(mine.unsqueeze(-1), a, b) for a, b in ((self.slope, other.slope), (self.x0, other.x0)))
        lower, value = (torch.where(mine, a, b) for a, b in ((self.lower, other.lower), (self.value, other.value)))
        error = None
        if self.error is not None and other.error is not None:
            error = torch.where(mine, self.error, other.error)
        return Plane(slope, lower, x0, value, error)

    @property
    def offset(self) -> Float[Tensor, "D S"]:
        return self.value if self.error is None else settled(self.value, self.error)


@runtime_checkable
class UpperFace(Protocol):
    """An upper face of a group's kinks that also reads the group's inputs: cuts make such faces (`cuts/faces`)."""

    @property
    def slope(self) -> Float[Tensor, "D S a"]:
        """The coefficient of x_hat."""

    def charge(
        self, negative: Float[Tensor, "D S a"], mu: Float[Tensor, "D S a"], rest: Remainder
    ) -> Float[Tensor, "D S a"]:
        """Add to `rest` what the face costs besides slope x_hat, where x has the coefficients `negative` <= 0.

        Returns the coefficients of x_hat: `mu`, and what else of the face is a multiple of x_hat.
        """

    def above(
        self, chord: Float[Tensor, "D S a"], values: Values, x_hat: Float[Tensor, "D S a"]
    ) -> tuple[Float[Tensor, "D S a"], tuple[Float[Tensor, "D S a"], ...]]:
        """The face at given inputs, and what a unit of each of its variables adds to it; `chord` is overwritten."""


@dataclass(frozen=True, eq=False)
class Choice:
    """What an optimiser may choose at the kinks of one group: lower slopes, multipliers of splits, upper faces."""

    slope: Float[Tensor, "#D #S a"]
    split: Float[Tensor, "#D #S a"] | None = None
    face: UpperFace | None = None  # None: the chord of the triangle


class Taken(NamedTuple):
    """What a sweep took at a group: a choice, the coefficients of x at the kinks, the faces if it has no ReLUs."""

    choice: Choice
    lam: Float[Tensor, "D S a"]
    faces: Lines | None


@dataclass(frozen=True, eq=False)
class Trace(State):
    """A finished sweep over faces: the plane, the coefficient of x[k] at the kinks of each group, and the faces of
    groups that are no ReLUs.
    """

    plane: Plane
    coefficients: tuple[Float[Tensor, "D S _"] | None, ...]
    lines: tuple[Lines | None, ...]

    @property
    def lower(self) -> Float[Tensor, "D S"]:
        return self.plane.lower

    @property
    def x0(self) -> Float[Tensor, "D S n0"]:
        return self.plane.x0


@dataclass(frozen=True, eq=False)
class Route:
    """Where x0 goes when it runs through the faces that a backward sweep chose.

    `values` are the x[j] of all sources, None for groups that nobody reads; `x_hat` those at the kinks of each group;
    `gains` what a unit of each cut's share adds to the upper faces.
    """

    values: list[Float[Tensor, "D S _"] | None]
    x_hat: tuple[Float[Tensor, "D S _"], ...]
    gains: tuple[tuple[Float[Tensor, "D S _"], ...] | None, ...]


@dataclass(frozen=True, eq=False)
class Sweep(State):
    """All that sweeps over one batch of regions share, for objectives at `layer`.

    In a sweep `lam` holds the coefficients of x[j] and `mu` those of x_hat[k].  The floats in `mu` are taken as the
    exact multipliers; every other quantity is then a sum whose rounding error is bounded and subtracted at the end.
    """

    net: Network
    region: Region
    layer: int
    neurons: tuple[Neurons, ...]
    slacks: tuple[Float[Tensor, "D _"], ...] | None  # None in float32, where bounds are not rigorous anyway

    @classmethod
    def prepare(
        cls, net: Network, region: Region, layer: int, slacks: tuple[Float[Tensor, "D _"], ...] | None = None
    ) -> Sweep:
        """`slacks` may come from regions that contain these: they do not grow when boxes shrink."""
        neurons = tuple(neurons_of(region, k) for k in range(1, layer))
        if slacks is None and region.lower.dtype is torch.float64:
            length = widest(net, layer) + len(net.layers)
            slacks = tuple(layer_slack(net.layers[k], region, length) for k in range(layer))
        return cls(net, region, layer, neurons, slacks)

    @cached_property
    def kinks(self) -> tuple[Kinks, ...]:
        """Those of all groups, for methods that know ReLUs only.  Raises TypeError if there are other groups."""
        found = tuple(neurons for neurons in self.neurons if isinstance(neurons, Kinks))
        if len(found) != len(self.neurons):
            raise TypeError("the method bounds networks of ReLUs only")
        return found

    def bent(self, k: int) -> Kinks | None:
        """The kinks of group k, if it is one of ReLUs and has some: those that cuts can be had for."""
        neurons = self.neurons[k - 1]
        return neurons if isinstance(neurons, Kinks) and neurons.count else None

    def zeros(self, k: int, objective: Objective) -> Float[Tensor, "D S n"]:
        """Coefficients of a group that nobody reads."""
        return self.region.lower.new_zeros(self.region.count, objective.count, self.net.layers[k - 1].neurons)

    # ------------------------------------------------------------ any way to eliminate, any way to complete

    def walk(self, objective: Objective, eliminate: Eliminate) -> Plane:
        """From the objective's layer to the input, one group after the other."""
        mu: Tensor | None = objective.coefficients.expand(self.region.count, -1, -1)
        rest = Remainder.of(objective, self.region)
        for k in range(self.layer, 0, -1):
            if k < self.layer:
                mu = eliminate(k, rest.take(k), rest)
            if mu is not None:
                self._through(k, mu, rest)
        return self._at_input(rest)

    def _through(self, k: int, mu: Float[Tensor, "D S n"], rest: Remainder) -> None:
        """Take multipliers of x_hat[k] back through the affine map of layer k, with its bias and its rounding."""
        layer = self.net.layers[k - 1]
        rest.value += mu @ layer.bias
        if self.slacks is not None:
            rest.error += dot(mu.abs(), self.slacks[k - 1])
        layer.pull(mu, rest.lam)

    def _at_input(self, rest: Remainder) -> Plane:
        """Minimise what is left over the input set, and subtract the error."""
        region, slope = self.region, rest.lam[0]
        if slope is None:
            slope = region.lower.new_zeros(1, 1, region.lower.shape[1])
        slope = slope.expand(*rest.value.shape, -1)
        least = minimise_over_input(region, slope)
        if self.slacks is None:
            return Plane(slope, rest.value + least.value, least.x, rest.value, None)
        size = dot(slope.abs(), source_magnitude(region, 0)) if least.size is None else least.size
        summed = rest.summed + size
        terms = widest(self.net, self.layer) + len(self.net.layers) + MARGIN
        error = rest.error + gamma(terms) * summed + region.doubt(self.layer)
        return Plane(slope, settled(rest.value + least.value, error), least.x, rest.value, error)

    def complete(
        self, x0: Float[Tensor, "D S n0"], activate: Activate, unread: Container[int] = ()
    ) -> tuple[list[Float[Tensor, "D S _"] | None], list[Float[Tensor, "D S _"]]]:
        """x[j] of all sources and x_hat at all kinks, if x0 is the input; what `unread` groups hold does not matter."""
        values: list[Tensor | None] = [x0]
        x_hats = []
        for k, neurons in enumerate(self.neurons, start=1):
            if k in unread:  # it may itself read another such group, which has no value
                values.append(None)
                x_hats.append(neurons.gather(x0.new_zeros(*x0.shape[:-1], self.net.layers[k - 1].size)))
                continue
            x_hat = self.net.layers[k - 1].forward(values)
            x_hats.append(neurons.gather(x_hat))
            values.append(neurons.scatter(x_hat, activate(k, x_hats[-1], values)))
        return values, x_hats

    def through_kinks(
        self, x0: Float[Tensor, "D S n0"], x: Sequence[Float[Tensor, "D S _"]]
    ) -> tuple[list[Float[Tensor, "D S _"] | None], list[Float[Tensor, "D S _"]]]:
        """`complete` where ambiguous kinks have given values, and all other neurons their own."""

        def activate(k: int, x_hat: Tensor, _: Values) -> Tensor:
            kinks = self.kinks[k - 1]
            return torch.where(kinks.ambiguous, x[k - 1], x_hat * kinks.upper)

        return self.complete(x0, activate)

    # ------------------------------------------------------------ faces

    def backward(self, objective: Objective, choices: Sequence[Choice]) -> Trace:
        """Every x[k] is replaced by the face of its relaxation that the sign of its coefficient asks for."""
        seen: list[Tensor | None] = [None] * (self.layer - 1)
        lines: list[Lines | None] = [None] * (self.layer - 1)
        priced = self.slacks is not None

        def relax(k: int, lam: Tensor | None, rest: Remainder) -> Tensor | None:
            if lam is None:
                return None
            mu, seen[k - 1], lines[k - 1] = self.neurons[k - 1].relax(lam, choices[k - 1], rest, priced)
            return mu

        return Trace(self.walk(objective, relax), tuple(seen), tuple(lines))

    def plane(self, objective: Objective, choices: Sequence[Choice]) -> Plane:
        """The same if nothing but the plane is needed, and all objectives have the same choices."""
        priced = self.slacks is not None

        def press(k: int, lam: Tensor | None, rest: Remainder) -> Tensor | None:
            if lam is None:
                return None
            neurons = self.neurons[k - 1]
            if isinstance(neurons, Smooth):
                return neurons.pressed(lam.expand(self.region.count, -1, -1), choices[k - 1], rest, priced)
            return neurons.relax(lam, choices[k - 1], rest, priced)[0]

        return self.walk(objective, press)

    def forward(self, trace: Trace, choices: Sequence[Choice]) -> Route:
        """Where x0 goes when it runs through the faces that the backward sweep chose."""
        gains: list[tuple[Tensor, ...] | None] = [None] * (self.layer - 1)

        def activate(k: int, x_hat: Tensor, values: Values) -> Tensor:
            lam = trace.coefficients[k - 1]
            assert lam is not None
            taken = Taken(choices[k - 1], lam, trace.lines[k - 1])
            x, gains[k - 1] = self.neurons[k - 1].activate(x_hat, values, taken)
            return x

        unread = [k for k, lam in enumerate(trace.coefficients, start=1) if lam is None]
        values, x_hats = self.complete(trace.x0, activate, unread)
        return Route(values, tuple(x_hats), tuple(gains))


def dot(rows: Float[Tensor, "D S n"], vector: Float[Tensor, "D n"]) -> Float[Tensor, "D S"]:
    """The inner product of every row with its region's vector."""
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
