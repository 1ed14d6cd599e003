"""What the domains of a problem share: the network, the boxes with their bounds, the rows; and how they are split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch

from verifier.bounding.core.base import Region, widest
from verifier.bounding.core.rounding import layer_slack
from verifier.bounding.core.state import State, cat, repeated, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.relaxation.neurons import neurons_of
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.solver import Task
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.search.implied import implied_signs
from verifier.search.signs.points import wide
from verifier.shapes import Bool, Float, Int, Int8, Tensor

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Root:
    """Input boxes with rigorous bounds in float64, their kinks fixed for the whole tree.

    A clause lies on one of the boxes; `rows` has one entry per clause, `numbers` gives their numbers in the property,
    `known` lower bounds of their largest rows.  A domain is a clause and a sign for each kink: +1 passing, -1 blocking,
    0 open; kinks are counted through all groups, and are those neurons that are ambiguous on some box.  Of groups that
    are no ReLUs all entries of x_hat count; they have bounds of their own in every domain, and never a sign.
    """

    net: Network
    single: Network  # the same in float32
    region: Region
    rough: Region  # the same in float32
    box: Int[Tensor, " C"]
    numbers: Int[Tensor, " C"]
    rows: Conjunction
    slacks: tuple[Float[Tensor, "N _"], ...]
    known: Float[Tensor, " C"]
    implied: Int8[Tensor, "C A"]  # signs that hold wherever the clause does
    units: Float[Tensor, "C K"] | None = None  # of the multipliers of splits; None: 1

    @classmethod
    def of(cls, problem: Problem, regions: Sequence[Region], clauses: Sequence[Sequence[int]]) -> Root:
        """Require: each region holds the bounds of one box (D = 1), and those clauses lie on it."""
        region = cat(regions)
        net = problem.network
        kinks = tuple(neurons_of(region, k).index for k in range(1, len(net.layers)))
        length = widest(net, len(net.layers)) + len(net.layers)
        slacks = tuple(layer_slack(layer, region, length) for layer in net.layers)
        region = replace(region, kinks=kinks)
        numbers = [number for some in clauses for number in some]
        box = [i for i, some in enumerate(clauses) for _ in some]
        like = region.lower
        root = cls(
            net,
            net.to(dtype=torch.float32),
            region,
            region.to(torch.float32),
            torch.tensor(box, device=like.device),
            torch.tensor(numbers, device=like.device),
            Conjunction.of(problem, [[number] for number in numbers]),
            slacks,
            like.new_full((len(numbers),), -torch.inf),
            implied_signs(problem, numbers, kinks),
        )
        return root if root.curved is None else replace(root, units=_units(Batch.whole(root)))

    def knowing(self, lower: Float[Tensor, " clauses"]) -> Root:
        """The same with bounds of all clauses of the property."""
        return replace(self, known=lower.to(self.device)[self.numbers])

    @property
    def device(self) -> torch.device:
        return self.region.lower.device

    @property
    def clauses(self) -> int:
        return len(self.numbers)

    @property
    def layer(self) -> int:
        """The number of the output's layer."""
        return len(self.net.layers)

    @property
    def indices(self) -> tuple[Int[Tensor, " _"], ...]:
        """The kinks of every group."""
        assert self.region.kinks is not None
        return self.region.kinks

    @property
    def sizes(self) -> list[int]:
        return [len(index) for index in self.indices]

    @property
    def kinks(self) -> int:
        return sum(self.sizes)

    @property
    def neurons(self) -> list[int]:
        """Neurons of every group with variables of their own: a product has two entries of x_hat."""
        return [size // group.function.arity for size, group in zip(self.sizes, self.net.groups, strict=True)]

    @cached_property
    def curved(self) -> Bool[Tensor, " A"] | None:
        """Which kinks are entries of other groups than ReLUs, and so split at points; None: no such group exists."""
        if self.net.piecewise_linear:
            return None
        kinds = [
            torch.full_like(index, not group.function.is_relu, dtype=torch.bool)
            for index, group in zip(self.indices, self.net.groups, strict=True)
        ]
        return torch.cat(kinds)

    def splittable(
        self, signs: Int8[Tensor, "D A"], low: Float[Tensor, "D A"], high: Float[Tensor, "D A"]
    ) -> Bool[Tensor, "D A"]:
        """Which kinks may be split in domains with these signs and bounds."""
        ambiguous = (signs == 0) & (low < 0) & (high > 0)
        return ambiguous if self.curved is None else torch.where(self.curved, wide(low, high), ambiguous)

    @cached_property
    def places(self) -> Int[Tensor, "A 2"]:
        """The group (from 1) and the neuron of every kink."""
        groups = [torch.full_like(index, k) for k, index in enumerate(self.indices, 1)]
        none = self.box[:0]
        return torch.stack([torch.cat([none, *groups]), torch.cat([none, *self.indices])], dim=1)

    def place(self, kink: int) -> tuple[int, int]:
        """The group (from 1) and the neuron of a kink."""
        group, neuron = self.places[kink].tolist()
        return group, neuron

    def bounds(self) -> tuple[Float[Tensor, "N A"], Float[Tensor, "N A"]]:
        """l_hat and u_hat of all kinks on each box."""
        return self.region.at_kinks()


@dataclass(frozen=True, eq=False)
class Batch(State):
    """Domains as a bounding method sees them.

    `bounds`, if given, are l_hat and u_hat of the kinks that were computed for these domains, side by side.
    `halvings` counts the splits at points; None: there were none.
    """

    root: Root
    clause: Int[Tensor, " D"]
    signs: Int8[Tensor, "D A"]
    bounds: Float[Tensor, "D B"] | None = None
    halvings: Int[Tensor, " D"] | None = None

    @property
    def depth(self) -> Int[Tensor, " D"]:
        """How often each domain was split; signs that its clause implies count as well."""
        signs = (self.signs != 0).sum(dim=1)
        return signs if self.halvings is None else signs + self.halvings

    def __len__(self) -> int:
        return len(self.clause)

    @classmethod
    def whole(cls, root: Root) -> Batch:
        """Every clause on its whole box, with the signs that it implies."""
        clause = torch.arange(root.clauses, device=root.device)
        return cls(root, clause, root.implied)

    def cut(self) -> tuple[Float[Tensor, "D A"], Float[Tensor, "D A"]]:
        """l_hat and u_hat of the kinks in float64, cut by the signs.  Where they cross, the domain is empty."""
        low, high = (side[self.root.box[self.clause]] for side in self.root.bounds())
        if self.bounds is not None:
            mine = self.bounds.to(low.dtype).chunk(2, dim=1)
            low, high = torch.maximum(low, mine[0]), torch.minimum(high, mine[1])
        low = torch.where(self.signs > 0, low.clamp(min=0), low)
        return low, torch.where(self.signs < 0, high.clamp(max=0), high)

    def region(self, dtype: torch.dtype = torch.float64) -> Region:
        """The region of each domain: its box's bounds, cut by the signs and by its own bounds."""
        region = self._of_boxes(self.root.region if dtype is torch.float64 else self.root.rough)
        low, high = (side.to(dtype) for side in self.cut())
        units = None if self.root.units is None else self.root.units[self.clause].to(dtype)
        return replace(region.with_kinks(low, high, self.signs), units=units)

    def _of_boxes(self, known: T) -> T:
        """What is known of all boxes, for the box of each domain."""
        if self.root.region.count == 1:
            return repeated(known, len(self))
        box = self.root.box[self.clause]
        return tree_map(lambda t: t[box], known, axis=0)

    def sweep(self, dtype: torch.dtype = torch.float32) -> Sweep:
        """Sweeps from the output over the domains; in float64 with the price of rounding."""
        if dtype is not torch.float64:
            return Sweep.prepare(self.root.single, self.region(dtype), self.root.layer)
        slacks = tuple(self._of_boxes(slack) for slack in self.root.slacks)
        return Sweep.prepare(self.root.net, self.region(), self.root.layer, slacks)

    def task(self, dtype: torch.dtype = torch.float32) -> Task:
        """What is to be bounded: the best combination of the rows of each domain's clause."""
        return Task.of_rows(self.sweep(dtype), self.rows(dtype))

    def rows(self, dtype: torch.dtype = torch.float32) -> Conjunction:
        """The rows of each domain's clause."""
        return self.root.rows.select(self.clause).to(dtype)

    def ambiguous(self) -> Tensor:
        """Which kinks may still be split.

        Decided by the signs and the float64 bounds: in float32 a tiny ambiguous neuron can look stable.
        """
        return self.root.splittable(self.signs, *self.cut())

    def kept(self) -> Float[Tensor, "D B"]:
        """What children inherit of the bounds, rounded outward; nothing where they are the root's."""
        if self.root.curved is None:
            return self.signs.new_zeros(len(self), 0, dtype=torch.float32) if self.bounds is None else self.bounds
        kept = torch.float32 if self.bounds is None else self.bounds.dtype
        low, high = self.cut()
        return torch.cat([outward(low, -1, kept), outward(high, 1, kept)], dim=1)


def _units(whole: Batch) -> Float[Tensor, "C K"]:
    """The mean size of the coefficients of x_hat in each group, in CROWN's sweep over the whole boxes."""
    task = whole.task()
    trace = task.sweep.backward(task.objective, Linear().choices(task.sweep))
    found = []
    for lam, lines in zip(trace.coefficients, trace.lines, strict=True):
        size = torch.zeros_like(trace.lower[:, 0]) if lam is None else lam[:, 0].abs().mean(dim=1)
        if lam is not None and lines is not None:
            size = torch.stack([(lam * slope)[:, 0].abs().mean(dim=1) for slope in lines.slopes]).mean(dim=0)
        found.append(torch.where((size > 0) & (size < torch.inf), size, 1.0))
    return torch.stack(found, dim=1).double()


def outward(values: Float[Tensor, "D A"], direction: int, kept: torch.dtype = torch.float32) -> Float[Tensor, "D A"]:
    """The next number of that kind in that direction, unless the value is one itself: bounds stay valid."""
    single = values.to(kept)
    wrong = single.double() < values if direction > 0 else single.double() > values
    towards = torch.full_like(single, direction * torch.inf)
    return torch.where(wrong, torch.nextafter(single, towards), single)


@dataclass(frozen=True, eq=False)
class Children(State):
    """Children of several parents, one below the other.

    Where a neuron is no ReLU, its sign is the side of a point that a child keeps.
    """

    parent: Int[Tensor, " C"]
    signs: Int8[Tensor, "C A"]
    kinks: Int[Tensor, "C levels"]  # where the parent was split; -1 where it could not be split so often


def split(signs: Int8[Tensor, "P A"], scores: Float[Tensor, "P A"], batch: int) -> Children:
    """Split every parent at its best kinks, several levels at once while that keeps the batch within `batch`.

    Require: some kinks; those that may be split have a score >= 0.  Guarantee: the children of a parent cover it and
    differ from each other.  A parent with fewer such kinks than others gets fewer children; with none, itself.
    """
    may_split = scores >= 0
    most, room = int(may_split.sum(dim=1).max()), int(math.log2(max(2, batch / len(signs))))
    levels = max(1, min(most, room))
    best = scores.topk(levels, dim=1).indices
    free, now = may_split.gather(1, best).unsqueeze(1), signs.gather(1, best).unsqueeze(1)  # [P, 1, levels]
    numbers = torch.arange(2**levels, device=best.device).unsqueeze(1)
    bits = ((numbers >> torch.arange(levels, device=best.device)) & 1).unsqueeze(0)  # [1, 2^levels, levels]
    choice = torch.where(free, (2 * bits - 1).to(torch.int8), now)  # [P, 2^levels, levels]
    different = (free | (bits == 0)).all(dim=2)  # one pattern only for what is not split
    made = signs.repeat_interleave(len(numbers), dim=0)
    made.scatter_(1, best.repeat_interleave(len(numbers), dim=0), choice.flatten(0, 1))
    parent = torch.arange(len(signs), device=best.device).repeat_interleave(len(numbers))
    kinks = torch.where(free.squeeze(1), best, -1).repeat_interleave(len(numbers), dim=0)
    return Children(parent, made, kinks).select(different.flatten())
