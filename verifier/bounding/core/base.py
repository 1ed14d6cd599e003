"""The vocabulary of bounding: regions, objectives, bounds, and what every bounder promises.

An objective is a tensor, so that intermediate bounds and output bounds are the same call: a lower bound of +e_i and
of -e_i at group k gives both bounds of neuron i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from verifier.bounding.core.ball import InputBall, Least
from verifier.bounding.core.select import by_sign
from verifier.bounding.core.state import COMMON, SHARED, State, cat, is_repeated, once, repeated
from verifier.clock import Clock
from verifier.functions import Function
from verifier.network.network import Affine, Network
from verifier.shapes import Float, Int, Int8, Tensor


@dataclass(frozen=True, eq=False)
class Region(State):
    """D input sets, each with valid pre-activation bounds of the groups 1..len(l_hat), whose functions are `functions`.

    Groups beyond that have not been bounded yet; a bounder may only be asked about layers that follow known groups.

    The input set is the box [lower, upper], or the part of it that lies in `ball`.  `kinks`, if given, lists the
    neurons of each group that are not stable in the same way in all regions, now or in any later part of them, so that
    variables keep their places.  `splits` marks neurons whose sign is a constraint of a branch and not a consequence of
    the bounds: +1 passing (x_hat >= 0), -1 blocking (x_hat <= 0), 0 neither; l_hat and u_hat are already cut
    accordingly.  `units`, if given, are sizes that coefficients of x_hat have in each group, in which multipliers of
    splits are counted.
    """

    lower: Float[Tensor, "D n0"]
    upper: Float[Tensor, "D n0"]
    l_hat: tuple[Float[Tensor, "D _"], ...] = ()
    u_hat: tuple[Float[Tensor, "D _"], ...] = ()
    functions: tuple[Function, ...] = field(default=(), metadata=SHARED)
    kinks: tuple[Int[Tensor, " _"], ...] | None = field(default=None, metadata=SHARED)
    splits: tuple[Int8[Tensor, "D _"], ...] | None = None
    units: Float[Tensor, "D K"] | None = None
    ball: InputBall | None = field(default=None, metadata=SHARED)

    @property
    def count(self) -> int:
        return self.lower.shape[0]

    @property
    def known(self) -> int:
        """How many groups have bounds."""
        return len(self.l_hat)

    def source(self, j: int) -> tuple[Float[Tensor, "D _"], Float[Tensor, "D _"]]:
        """The box of x[j]: the input for j = 0, else the activation of group j."""
        if j == 0:
            return self.lower, self.upper
        return once(self.functions[j - 1].image, self.l_hat[j - 1], self.u_hat[j - 1])

    def tight(self, layer: Affine) -> bool:
        """Whether the interval image of a layer is exact."""
        return self.ball is None and layer.exact

    def extended(self, group: Affine, l_hat: Float[Tensor, "D n"], u_hat: Float[Tensor, "D n"]) -> Region:
        """The same boxes with bounds of one more group."""
        functions = (*self.functions, group.function)
        return replace(self, l_hat=(*self.l_hat, l_hat), u_hat=(*self.u_hat, u_hat), functions=functions)

    def doubt(self, layer: int) -> Float[Tensor, "#D 1"]:
        """Infinite where a function before a layer may not be defined on all of a region, else zero.

        Every bound has to pay it: bounded functions of what has no value would hide that it has none.
        """
        found = self.lower.new_zeros(1, 1)
        for function, low, high in list(zip(self.functions, self.l_hat, self.u_hat, strict=True))[: layer - 1]:
            if function.partial:
                found = found + torch.where(function.defined(low, high).all(dim=1, keepdim=True), 0.0, torch.inf)
        return found

    def full_width(self) -> Region:
        """The same with all neurons as kinks: for regions that have little in common."""
        kinks = tuple(torch.arange(low.shape[1], device=low.device) for low in self.l_hat)
        return replace(self, kinks=kinks)

    def at_kinks(self) -> tuple[Float[Tensor, "D A"], Float[Tensor, "D A"]]:
        """l_hat and u_hat of all kinks, group after group.  Require: `kinks`."""
        assert self.kinks is not None
        none = self.lower[:, :0]
        lows = (low[:, index] for low, index in zip(self.l_hat, self.kinks, strict=True))
        highs = (high[:, index] for high, index in zip(self.u_hat, self.kinks, strict=True))
        return torch.cat([none, *lows], dim=1), torch.cat([none, *highs], dim=1)

    def with_kinks(
        self, l_hat: Float[Tensor, "D A"], u_hat: Float[Tensor, "D A"], signs: Int8[Tensor, "D A"]
    ) -> Region:
        """The same with other bounds of the kinks, and with signs that branches have imposed on them.

        Groups in which nothing changes stay as they are, which matters where they are the same in all regions.
        """
        assert self.kinks is not None
        sizes = [len(index) for index in self.kinks]
        changed = self._changed(l_hat, u_hat, signs)
        lows, highs, splits = [], [], []
        for k, (low, high, sign) in enumerate(
            zip(*(x.split(sizes, dim=1) for x in (l_hat, u_hat, signs)), strict=True)
        ):
            index, (low_before, high_before) = self.kinks[k], (self.l_hat[k], self.u_hat[k])
            none = torch.zeros_like(low_before[:1], dtype=torch.int8)
            lows.append(low_before.index_copy(1, index, low) if changed[k] else low_before)
            highs.append(high_before.index_copy(1, index, high) if changed[k] else high_before)
            split = repeated(none, self.count)
            splits.append(split.index_copy(1, index, sign) if changed[k] else split)
        return replace(self, l_hat=tuple(lows), u_hat=tuple(highs), splits=tuple(splits))

    def _changed(
        self, l_hat: Float[Tensor, "D A"], u_hat: Float[Tensor, "D A"], signs: Int8[Tensor, "D A"]
    ) -> list[bool]:
        """In which groups some region has another bound or a sign; whoever shares no memory need not know."""
        assert self.kinks is not None
        if not all(map(is_repeated, (*self.l_hat, *self.u_hat))):
            return [True] * self.known
        low, high = self.select(slice(0, 1)).at_kinks()
        places = ((signs != 0) | (l_hat != low) | (u_hat != high)).any(dim=0)
        groups = [place.any() for place in places.split([len(index) for index in self.kinks])]
        found: list[bool] = torch.stack(groups).tolist() if groups else []
        return found

    def ambiguous(self, k: int) -> Tensor:
        """Which neurons of group k are not linear within their bounds, per box."""
        return self.functions[k - 1].bends(self.l_hat[k - 1], self.u_hat[k - 1])


@dataclass(frozen=True, eq=False)
class Objective(State):
    """S linear functions per region: coefficients . x_hat[layer] + inputs . x[0] + constant, to be minimised.

    `layer` counts from 1; K + 1 is the output.  A leading axis of size 1 serves all regions.  `error` says how much
    larger than the functions that are meant these ones can be on the region, if they were rounded themselves: rigorous
    bounds subtract it.
    """

    layer: int
    coefficients: Float[Tensor, "#D S n"] = field(metadata=COMMON)
    inputs: Float[Tensor, "#D S n0"] | None = field(default=None, metadata=COMMON)
    constant: Float[Tensor, "#D S"] | None = field(default=None, metadata=COMMON)
    error: Float[Tensor, "#D S"] | None = field(default=None, metadata=COMMON)

    @property
    def count(self) -> int:
        return self.coefficients.shape[1]


@dataclass(frozen=True, eq=False)
class Bound:
    """Valid lower bounds, and where the relaxation attains them.

    `lower` is rigorous when the network was given in float64: every rounding error has been subtracted.
    """

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"] | None  # None where that would take another sweep
    state: State | None = None  # the dual variables that were found; None where there are none
    iterations: int = 0  # steps of an ascent, or rounds of cuts that were added to linear programs; the most of any row
    # What was subtracted for rounding, where that is known.
    error: Float[Tensor, "D S"] | None = field(default=None, kw_only=True)

    @classmethod
    def joined(cls: type[BoundT], found: Sequence[BoundT], dim: int = 1) -> BoundT:
        """The bounds of consecutive parts of an objective or, with dim 0, of several batches of regions."""
        if len(found) == 1:
            return found[0]
        points = [f.x0 for f in found if f.x0 is not None]
        states = [f.state for f in found if f.state is not None]
        errors = [f.error for f in found if f.error is not None]
        return cls(
            torch.cat([f.lower for f in found], dim=dim),
            torch.cat(points, dim=dim) if points else None,
            cat(states, dim) if states else None,
            max(f.iterations for f in found),
            error=torch.cat(errors, dim=dim) if errors else None,
        )

    def then(self: BoundT, found: BoundT) -> BoundT:
        """What was found from here on, with the iterations of both."""
        return replace(found, iterations=self.iterations + found.iterations)


BoundT = TypeVar("BoundT", bound=Bound)


@dataclass(frozen=True)
class Until:
    """When to stop: at a deadline, at a bound that is good enough, or as soon as nobody waits for it any more."""

    clock: Clock = field(default_factory=Clock.begin)
    threshold: float | None = None  # a region whose objectives all exceed it is done
    needless: Callable[[], bool] | None = None  # whether nobody needs the answer any more

    def expired(self) -> bool:
        return self.clock.expired() or (self.needless is not None and self.needless())

    def alone(self) -> Until:
        """The same for one of several processes, which cannot hear whether the answer is still needed."""
        return replace(self, needless=None)


MEMORY = 128 * 2**20
"""Bytes that one call may hold at once, unless it is told otherwise."""


def together(bytes_each: int, memory_bytes: int = MEMORY) -> int:
    """How many items of that size may be worked on at once."""
    return max(1, memory_bytes // max(1, bytes_each))


Watch = Callable[[Tensor], None]
"""Hears the bounds [D, S] of every iterate."""


@dataclass(frozen=True)
class Bounder(ABC):
    """Lower-bounds linear objectives over a relaxation of a batch of regions.

    A bounder is its hyper-parameters, frozen; whatever evolves is passed in and comes out.
    """

    memory_bytes: int = field(default=MEMORY, kw_only=True)
    watch: Watch | None = field(default=None, kw_only=True)  # bounders without iterates tell nothing

    def watched(self: BounderT, watch: Watch) -> BounderT:
        """The same with a listener."""
        return replace(self, watch=watch)

    def learning(self: BounderT) -> BounderT:
        """The same for many objectives of one network in turn: each may begin with what was best for those before."""
        return self

    @property
    def proves(self) -> bool:
        """Whether its bounds carry a `state` that, found in float32, keeps its value when evaluated in float64."""
        return False

    @property
    def any_function(self) -> bool:
        """Whether it bounds networks with other functions than ReLUs."""
        return False

    @property
    def separately(self) -> bool:
        """Whether rows have to be bounded even if another one is the same, because somebody repeats it row by row."""
        return False

    @property
    def rigorous(self) -> bool:
        """Whether its bounds in float64 include all rounding errors: only such a bound closes a clause."""
        return True

    @abstractmethod
    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        """Require: `region` knows all groups before `objective.layer`.  Guarantee: see `Bound`."""


BounderT = TypeVar("BounderT", bound=Bounder)


def minimise_over_input(region: Region, coefficients: Float[Tensor, "D S n0"]) -> Least:
    """The minimum of coefficients . x over the input set, and a point that attains it.

    With a ball it is the better one of two bounds, that of the box and that of the part in the ball.
    """
    x0 = by_sign(coefficients, region.lower.unsqueeze(1), region.upper.unsqueeze(1))
    value = (coefficients * x0).sum(dim=-1)
    if region.ball is None:
        return Least(value, x0)
    found = region.ball.least(coefficients, region.lower, region.upper)
    better = found.value > value  # and not where it is no number; its size is never the smaller one
    return Least(torch.where(better, found.value, value), torch.where(torch.isfinite(found.x), found.x, x0), found.size)


def widest(net: Network, layer: int) -> int:
    """Entries of the largest vector that a sweep from `layer` back to the input holds."""
    return max([net.n_in, *(group.size for group in net.layers[:layer])])


def unit_objectives(size: int, neurons: Tensor, like: Tensor) -> Float[Tensor, "1 S n"]:
    """+e_i and then -e_i for the given neurons: lower bounds, and negated upper bounds."""
    rows = torch.zeros(2 * len(neurons), size, dtype=like.dtype, device=like.device)
    at = torch.arange(len(neurons), device=like.device)
    rows[at, neurons] = 1.0
    rows[at + len(neurons), neurons] = -1.0
    return rows.unsqueeze(0)
