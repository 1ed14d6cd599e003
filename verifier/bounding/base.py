"""The vocabulary of bounding: regions, objectives, bounds, and what every bounder promises.

An objective is a tensor, so that intermediate bounds and output bounds are the same call: a lower bound of +e_i and
of -e_i at group k gives both bounds of neuron i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch

from verifier.clock import Clock
from verifier.network.network import Network
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Region:
    """D input boxes, each with valid pre-activation bounds of the groups 1..len(l_hat).

    Groups beyond that have not been bounded yet; a bounder may only be asked about layers that follow known groups.
    """

    lower: Float[Tensor, "D n0"]
    upper: Float[Tensor, "D n0"]
    l_hat: tuple[Float[Tensor, "D _"], ...] = ()
    u_hat: tuple[Float[Tensor, "D _"], ...] = ()

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
        return self.l_hat[j - 1].clamp(min=0), self.u_hat[j - 1].clamp(min=0)

    def extended(self, l_hat: Float[Tensor, "D n"], u_hat: Float[Tensor, "D n"]) -> Region:
        """The same boxes with bounds of one more group."""
        return Region(self.lower, self.upper, (*self.l_hat, l_hat), (*self.u_hat, u_hat))

    def ambiguous(self, k: int) -> Tensor:
        """Which neurons of group k have a kink inside of their bounds, per box."""
        return (self.l_hat[k - 1] < 0) & (self.u_hat[k - 1] > 0)


@dataclass(frozen=True, eq=False)
class Objective:
    """S linear functions per region: coefficients . x_hat[layer] + inputs . x[0] + constant, to be minimised.

    `layer` counts from 1; K + 1 is the output.  A leading axis of size 1 serves all regions.
    """

    layer: int
    coefficients: Float[Tensor, "#D S n"]
    inputs: Float[Tensor, "#D S n0"] | None = None
    constant: Float[Tensor, "#D S"] | None = None

    @property
    def count(self) -> int:
        return self.coefficients.shape[1]


@dataclass(frozen=True, eq=False)
class Bound:
    """Valid lower bounds, and where the relaxation attains them.

    `lower` is rigorous when the network was given in float64: every rounding error has been subtracted.
    """

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"] | None


@dataclass(frozen=True)
class Until:
    """When to stop: a deadline, and the memory that one call may take."""

    clock: Clock = field(default_factory=Clock.begin)
    memory_bytes: int = 512 * 2**20

    def expired(self) -> bool:
        return self.clock.expired()

    def chunk(self, bytes_each: int) -> int:
        """How many items of that size may be worked on at once."""
        return max(1, self.memory_bytes // max(1, bytes_each))


class Bounder(ABC):
    """Lower-bounds linear objectives over a relaxation of a batch of regions.

    A bounder is its hyper-parameters, frozen; whatever evolves is passed in and comes out.
    """

    @abstractmethod
    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        """Require: `region` knows all groups before `objective.layer`.  Guarantee: see `Bound`."""


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
