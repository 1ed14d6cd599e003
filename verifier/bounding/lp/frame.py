"""One linear program for all domains of a problem: domains differ in its numbers, never in its rows and columns.

Columns are the inputs, x of every neuron that does not block everywhere, x_hat of the kinks and, where cuts need it,
their z.  At a kink the rows are those of the Planet relaxation while it is ambiguous; once its sign is known they are
bent by their sides alone:

    x_hat = W x_in + b
    x - x_hat    >= 0,  = 0 where the neuron passes; it holds a blocking neuron down only if a split asks for it
    the upper faces, absent where the neuron is stable: (u_hat - l_hat) x <= u_hat (x_hat - l_hat) or, with z,
    x <= u_hat z  and  x <= x_hat - l_hat (1 - z)

The constraints are exactly those that a `Lagrangian` prices, so multipliers of the rows become multipliers of that
function, and its float64 evaluation proves the bound.  In particular passing neurons have no box of their own: theirs
is so wide that no optimum touches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.lp.model import NONE, Assembly, group_rows
from verifier.bounding.lp.program import Floats, Ints, Program
from verifier.network.network import Network
from verifier.shapes import Float, Tensor

WIDER = 1e3
"""How much wider than their bounds the boxes of passing neurons are."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """The bounds of one region: of its inputs, of all hidden neurons, and of the kinks with the signs of splits."""

    inputs: tuple[Floats, Floats]
    hidden: tuple[tuple[Floats, Floats], ...]
    l_hat: Floats
    u_hat: Floats
    sign: Floats

    @classmethod
    def of(cls, sweep: Sweep) -> list[Numbers]:
        """Those of every region of a sweep."""
        region = sweep.region.to(torch.float64).to(torch.device("cpu"))
        l_hat = _joined(region, [kinks.l_hat for kinks in sweep.kinks])
        u_hat = _joined(region, [kinks.u_hat for kinks in sweep.kinks])
        known = (torch.zeros_like(kinks.l_hat) if kinks.sign is None else kinks.sign for kinks in sweep.kinks)
        sign = _joined(region, list(known))
        found = []
        for d in range(region.count):
            groups = range(sweep.layer - 1)
            hidden = tuple((region.l_hat[k][d].numpy(), region.u_hat[k][d].numpy()) for k in groups)
            inputs = region.lower[d].numpy(), region.upper[d].numpy()
            found.append(cls(inputs, hidden, l_hat[d], u_hat[d], sign[d]))
        return found

    @property
    def passing(self) -> np.ndarray:
        return self.l_hat >= 0

    @property
    def ambiguous(self) -> np.ndarray:
        return (self.l_hat < 0) & (self.u_hat > 0)


@dataclass(frozen=True, eq=False)
class Places:
    """Columns and rows of the kinks, through all groups; `upper` has one kind of row without z, two with it.

    `entries` are the places of those values of the program that depend on the bounds of the kinks, kind by kind.
    """

    x: Ints
    x_hat: Ints
    z: Ints
    lower: Ints
    upper: tuple[Ints, ...]
    entries: tuple[Ints, ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """The program without its numbers, and where its variables are; x[j] has a column for every entry of source j."""

    program: Program
    x: tuple[Ints, ...]
    kinks: Places

    @classmethod
    def of(cls, net: Network, sweep: Sweep, with_z: bool) -> Frame:
        """The program of all regions that have these kinks.  Require: the network in float64 on the CPU."""
        assembly = Assembly()
        x, columns, rows = [assembly.columns(*_nowhere(net.n_in))], [], []
        for k, kinks in enumerate(sweep.kinks, start=1):
            index = kinks.index.cpu().numpy()
            bent = np.zeros(net.layers[k - 1].size, dtype=bool)
            bent[index] = True
            read = bent | (kinks.passing.cpu().numpy() > 0)
            group = group_rows(net.layers[k - 1], np.flatnonzero(read), x, [_nowhere(len(part)) for part in x])
            x.append(assembly.columns(*_nowhere(len(bent)), read))
            x_hat = assembly.columns(*_nowhere(len(bent)), bent)
            z = assembly.columns(*_nowhere(len(bent)), bent & with_z)
            result = np.where(bent, x_hat, x[k])[group.neurons]
            at = np.arange(len(result))
            entries = [(at, result, np.ones(len(at))), (group.row, group.columns[group.source], -group.weight)]
            assembly.rows(entries, group.bias, group.bias)
            columns.append((x[k][index], x_hat[index], z[index]))
            rows.append(_state_faces(assembly, *columns[-1]))
        program = assembly.program()
        return cls(program, tuple(x), _places(program, columns, rows, with_z))

    def at(self, numbers: Numbers, before: Program) -> Program:
        """The program of one region; values that do not matter are those of the program `before`."""
        low, high = self._boxes(numbers)
        places, ambiguous = self.kinks, numbers.ambiguous
        row_low, row_high, values = before.rows.low.copy(), before.rows.high.copy(), before.rows.values.copy()
        free = ~ambiguous & ~numbers.passing & (numbers.sign >= 0)
        row_low[places.lower] = np.where(free, -np.inf, 0.0)
        row_high[places.lower] = np.where(numbers.passing, 0.0, np.inf)
        for row, entry, (value, side) in zip(places.upper, places.entries, self._faces(numbers), strict=True):
            row_high[row] = np.where(ambiguous, side, np.inf)
            values[entry[ambiguous]] = value[ambiguous]
        return Program(low, high, replace(before.rows, low=row_low, high=row_high, values=values))

    def _boxes(self, numbers: Numbers) -> tuple[Floats, Floats]:
        """The boxes of all columns."""
        low, high = self.program.low.copy(), self.program.high.copy()
        low[self.x[0]], high[self.x[0]] = numbers.inputs
        for columns, sides in zip(self.x[1:], numbers.hidden, strict=True):
            present = columns != NONE
            wide = _widened(sides[0][present], sides[1][present])
            low[columns[present]], high[columns[present]] = wide
        places, ambiguous, passing = self.kinks, numbers.ambiguous, numbers.passing
        wide = _widened(numbers.l_hat, numbers.u_hat)
        low[places.x] = np.where(passing & (numbers.sign <= 0), wide[0], 0.0)
        high[places.x] = np.where(passing, wide[1], np.where(ambiguous, numbers.u_hat, 0.0))
        low[places.x_hat] = np.where(ambiguous, numbers.l_hat, wide[0])
        high[places.x_hat] = np.where(ambiguous, numbers.u_hat, wide[1])
        low[places.z[places.z != NONE]], high[places.z[places.z != NONE]] = 0.0, 1.0
        return low, high

    def _faces(self, numbers: Numbers) -> list[tuple[Floats, Floats]]:
        """Of every kind of upper face: the value that depends on the bounds, and the right-hand side."""
        l_hat, u_hat = numbers.l_hat, numbers.u_hat
        if len(self.kinks.upper) == 1:
            slope = self.slope(numbers)
            return [(-slope, -slope * l_hat)]
        return [(-u_hat, np.zeros_like(u_hat)), (-l_hat, -l_hat)]

    @staticmethod
    def slope(numbers: Numbers) -> Floats:
        """Of the chord, where there is one."""
        width = np.where(numbers.ambiguous, numbers.u_hat - numbers.l_hat, 1.0)
        return np.asarray(numbers.u_hat / width, dtype=np.float64)

    def costs(self, net: Network, objective: Objective) -> Float[Tensor, "#D S columns"]:
        """The objectives as costs of the columns, without their constants."""
        layer, mu = net.layers[objective.layer - 1], objective.coefficients.to("cpu", torch.float64)
        cost = mu.new_zeros(*mu.shape[:2], self.program.width + 1)  # the last entry collects what NONE points at
        for source, term in layer.terms:
            cost[..., self.x[source]] += term.transpose(mu)
        if objective.inputs is not None:
            cost = cost.expand(max(len(mu), len(objective.inputs)), -1, -1).clone()
            cost[..., self.x[0]] += objective.inputs.to("cpu", torch.float64)
        return cost[..., :-1]

    def multipliers(self, numbers: Numbers, program: Program, cost: Floats, y: Floats) -> Floats:
        """alpha, beta0, beta1 and split multipliers of the kinks, from multipliers of the program's rows.

        A price on the box of x_hat goes to the constraint that implies this side of it.  Guarantee: the Lagrangian is
        worth at least as much there as the program's own, but for what passing neurons gain from their boxes.
        """
        places, ambiguous = self.kinks, numbers.ambiguous
        reduced = cost - program.rows.transposed_times(y, program.width)
        at_x_hat, lower = reduced[places.x_hat], y[places.lower]
        prices = [np.maximum(-y[row], 0.0) for row in places.upper]
        if len(prices) == 1:
            slope = self.slope(numbers)
            prices = [prices[0] * (1.0 - slope), prices[0] * slope]
        alpha = np.where(ambiguous, np.maximum(lower, 0.0) + np.maximum(-at_x_hat, 0.0), 0.0)
        beta0 = np.where(ambiguous, prices[0], 0.0)
        beta1 = np.where(ambiguous, prices[1] + np.maximum(at_x_hat, 0.0), 0.0)
        held = np.where(numbers.passing, reduced[places.x], lower)
        split = np.where((numbers.sign != 0) & ~ambiguous, np.maximum(held, 0.0), 0.0)
        return np.concatenate([alpha, beta0, beta1, split])


def _state_faces(assembly: Assembly, x: Ints, x_hat: Ints, z: Ints) -> list[Ints]:
    """The rows of the kinks of one group: x - x_hat, then the upper faces; values that depend on bounds are -1."""
    at, one, nothing = np.arange(len(x)), np.ones(len(x)), np.full(len(x), -np.inf)
    lower = assembly.rows([(at, x, one), (at, x_hat, -one)], np.zeros_like(one), -nothing)
    if (z == NONE).all():
        return [lower, assembly.rows([(at, x, one), (at, x_hat, -one)], nothing, -nothing)]
    first = assembly.rows([(at, x, one), (at, z, -one)], nothing, -nothing)
    second = assembly.rows([(at, x, one), (at, x_hat, -one), (at, z, -one)], nothing, -nothing)
    return [lower, first, second]


def _places(program: Program, columns: Sequence[Sequence[Ints]], rows: list[list[Ints]], with_z: bool) -> Places:
    """Columns and rows of all groups, and where the program keeps the values that depend on bounds."""
    x, x_hat, z = (np.concatenate([np.zeros(0, np.int64), *(c[i] for c in columns)]) for i in range(3))
    lower, *upper = (
        np.concatenate([np.zeros(0, np.int64), *(r[i] for r in rows if i < len(r))]) for i in range(3 if with_z else 2)
    )
    numbers = np.repeat(np.arange(program.rows.count), np.diff(program.rows.indptr))
    order = numbers * program.width + program.rows.columns  # ascending: rows are stored one after the other
    moving = z if with_z else x_hat
    entries = tuple(np.searchsorted(order, row * program.width + moving) for row in upper)
    return Places(x, x_hat, z, lower, tuple(upper), entries)


def _widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Boxes that are far wider: a refutation that leaned on them would prove nothing, and is not worth finding."""
    more = WIDER * (1.0 + high - low)
    return low - more, high + more


def _nowhere(count: int) -> tuple[Floats, Floats]:
    """Boxes that are given later."""
    return np.zeros(count), np.zeros(count)


def _joined(region: Region, parts: list[Float[Tensor, "D 1 _"]]) -> Floats:
    """A property of the kinks through all groups, region by region."""
    found = [region.lower[:, :0], *(part.squeeze(1).to(region.lower) for part in parts)]
    return np.asarray(torch.cat(found, dim=1).numpy(), dtype=np.float64)
