"""Bounds of hidden neurons by local sweeps: float32 finds what is stable, float64 bounds the rest.

requires:   one region without splits; groups of ReLUs
guarantees: never looser than what was given; rigorous.  A deadline leaves what is known
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from verifier.bounding.core.base import Region, Until, together
from verifier.bounding.hidden import IN_TURN, WORTH_SHARING, Ends, Workers, ambiguous
from verifier.bounding.local.passes import Passes
from verifier.bounding.local.reference import Reference
from verifier.bounding.local.sweep import LocalSweep
from verifier.bounding.relaxation.zonotope import fits_single
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
from verifier.operators import LinearMap
from verifier.shapes import Float, Int, Tensor

NEAR = 96 * 2**20
"""Bytes that rows may take which are swept together: more of them leave the cache."""

Rows = tuple[Int[Tensor, " R"], Float[Tensor, " R"]]
"""Neurons, and the signs with which they are bounded from below."""


@dataclass(frozen=True, eq=False)
class LocalBounds:
    """Bounds of groups by local sweeps: in float32 first, in float64 where a neuron is ambiguous after that.

    In float32 a neuron is bounded on the side that can show that it is stable, which the reference tells; where it
    passes, on the other side too.  So stable neurons have the bounds of float32, ambiguous ones those of float64.
    """

    double: Passes
    single: Passes | None  # in float32, if that suffices
    slope: Slope
    memory_bytes: int
    _last: list[Reference] = field(default_factory=list)  # that of the latest group

    @classmethod
    def of(cls, net: Network, slope: Slope, memory_bytes: int) -> LocalBounds:
        """For regions of which each has the bounds of the one before, and perhaps more."""
        fits = fits_single(net) and all(_matrices(term) <= 2 for layer in net.layers for _, term in layer.terms)
        double = Passes(net)
        return cls(double, Passes(net.to(dtype=torch.float32), double) if fits else None, slope, memory_bytes)

    @property
    def net(self) -> Network:
        return self.double.net

    def serves(self, region: Region, k: int) -> bool:
        """Whether it bounds group k of a region."""
        plain = region.count == 1 and region.splits is None and region.kinks is None
        groups = self.net.groups[:k]
        return plain and not groups[-1].exact and all(group.function.is_relu for group in groups)

    def look(self, region: Region, k: int, ends: Ends, neurons: Int[Tensor, " c"]) -> None:
        """Tightens the ends of some neurons of group k, in the cheaper way."""
        sweep = self._sweep(self.single or self.double, region, self._reference(region, k))
        self._tighten(ends, *_both_sides(neurons), sweep.lower(*_both_sides(neurons)))

    def narrow(self, region: Region, k: int, ends: Ends, until: Until, workers: Workers = IN_TURN) -> Iterator[None]:
        """Tightens the ends of group k where it is ambiguous, part by part.  Require: it `serves`."""
        group, reference = self.net.groups[k - 1], self._reference(region, k)
        if self.single is not None:
            some = ambiguous(group, ends)
            sweep = self._sweep(self.single, region, reference)
            towards = torch.where(reference.x_hat[-1][some] >= 0, 1.0, -1.0).double()
            yield from self._shared(sweep, (some, towards), ends, until, workers)
            passing = some[ends[0][0, some] >= 0]
            above = torch.full_like(towards[: len(passing)], -1.0)
            yield from self._shared(sweep, (passing, above), ends, until, workers)
        rest = _both_sides(ambiguous(group, ends))
        yield from self._shared(self._sweep(self.double, region, reference), rest, ends, until, workers)

    def _reference(self, region: Region, k: int) -> Reference:
        self._last[:] = [Reference.of(self.net, region, k, next(iter(self._last), None))]
        return self._last[0]

    def _sweep(self, passes: Passes, region: Region, reference: Reference) -> LocalSweep:
        return LocalSweep.of(passes, region, reference, self.slope)

    def _shared(self, sweep: LocalSweep, rows: Rows, ends: Ends, until: Until, workers: Workers) -> Iterator[None]:
        """Tightens the ends by bounds of some rows; the workers share them."""
        neurons, sign = rows
        if not len(neurons):
            return
        if len(neurons) * sweep.bytes_each <= WORTH_SHARING:
            workers = IN_TURN
        elif workers.count > 1:
            sweep.prepare()
        most = workers.count * together(sweep.bytes_each, min(self.memory_bytes, NEAR))
        rounds = workers.count * math.ceil(len(neurons) / most)
        chunks = sweep.order(neurons).split(math.ceil(len(neurons) / rounds))  # equal shares

        def bounded(some: Int[Tensor, " c"]) -> Float[Tensor, " c"]:
            return sweep.lower(neurons[some], sign[some])

        for some, found in zip(chunks, workers.map(bounded, chunks, until.expired), strict=True):
            if found is not None:
                self._tighten(ends, neurons[some], sign[some], found)
        yield

    def _tighten(self, ends: Ends, neurons: Int[Tensor, " c"], sign: Tensor, found: Float[Tensor, " c"]) -> None:
        """By lower bounds of sign times some neurons; NaN tightens nothing."""
        low, high = ends[0][0], ends[1][0]
        below, above = neurons[sign > 0], neurons[sign < 0]
        most, least = found[sign > 0], -found[sign < 0]
        low[below] = torch.where(most > low[below], most, low[below])
        high[above] = torch.where(least < high[above], least, high[above])


def _matrices(term: LinearMap) -> int:
    """How many stored matrices a map multiplies."""
    return sum(map(_matrices, getattr(term, "maps", ()))) + (term.weights is not None)


def _both_sides(neurons: Int[Tensor, " c"]) -> Rows:
    sides = torch.ones(len(neurons), dtype=torch.float64, device=neurons.device)
    return torch.cat([neurons, neurons]), torch.cat([sides, -sides])
