"""Network and property together: the whole instance as tensors, ready for bounding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from verifier.errors import InputError
from verifier.network.magnitudes import beyond, radii, spoiled
from verifier.network.merge import LayerMerge
from verifier.network.network import Network
from verifier.operators.base import FLOOR, gamma
from verifier.property.property import Doubles, Property
from verifier.shapes import Float64, Tensor


@dataclass(frozen=True, eq=False)
class ClauseRows:
    """The rows of one clause: unsafe points satisfy `A y + B x <= c`, all rows at once.  B may be None (zero)."""

    A: Float64[Tensor, "m n_y"]
    B: Float64[Tensor, "m n0"] | None
    c: Float64[Tensor, " m"]


@dataclass(frozen=True, eq=False)
class Stated:
    """An instance as its files state it."""

    network: Network
    property: Property


@dataclass(frozen=True, eq=False)
class Problem:
    """An instance.  It is `unsat` if every clause is empty: no x of its box has all rows at or below zero.

    `lower` and `upper` contain the decimal boxes.  `rows[k]` belongs to clause k of the property and is a superset of
    its exact rows on its box, so a proof about the tensors is a proof about the file.  `clauses_of[b]` lists the
    clauses of box b: whatever depends on the box only is computed once for all of them.
    """

    network: Network
    property: Property
    lower: Float64[Tensor, "N n0"]
    upper: Float64[Tensor, "N n0"]
    rows: tuple[ClauseRows, ...]
    clauses_of: tuple[tuple[int, ...], ...]
    beyond: str | None = None  # why nothing can be proved, in words: no bound of the network is finite then
    merged: tuple[LayerMerge, ...] = ()  # what became of the layers of the file (docs/merge.md), if it was anything
    stated: Stated | None = None  # by which witnesses are judged, if the property above is not quite the file's

    def unprovable(self, why: str) -> Problem:
        """The same instance if nothing may be proved of it; witnesses are judged as before."""
        return replace(self, network=spoiled(self.network), beyond=why, stated=self.original())

    def original(self) -> Stated:
        """The instance by which witnesses are judged."""
        return self.stated or Stated(self.network, self.property)


def check_counts(counts: tuple[int, int], prop: Property) -> None:
    """Raises InputError if a network with so many inputs and outputs is not the one that a property speaks of."""
    for word, has, wants in zip(("inputs", "outputs"), counts, (prop.n_x, prop.n_y), strict=True):
        if has != wants:
            raise InputError(f"the network has {has} {word}, but the property declares {wants}")


def canonicalise(network: Network, prop: Property) -> Problem:
    """Brings both together.  Raises InputError if the numbers of inputs or outputs differ.

    Guarantees: the error model of docs/numerics.md holds for the network on all boxes, or nothing can be proved of it.
    """
    check_counts((network.n_in, network.n_out), prop)
    lower, upper = torch.from_numpy(prop.boxes.lower.copy()), torch.from_numpy(prop.boxes.upper.copy())
    members: list[list[int]] = [[] for _ in range(len(prop.boxes))]
    for k, clause in enumerate(prop.clauses):
        members[clause.box].append(k)
    largest = torch.maximum(lower.abs(), upper.abs())
    layer = beyond(network, largest.amax(dim=0)) if len(largest) else None
    too_large = None if layer is None else f"the numbers of layer '{layer}' are too large for a proof in 64-bit floats"
    radius: dict[int, Float64[Tensor, " n_y"]] = {}
    rows = []
    for clause, own in zip(prop.clauses, _tensors(prop), strict=True):
        if clause.rows.A_error is not None:
            if clause.box not in radius:
                radius[clause.box] = radii(network, largest[clause.box])[-1]
            own = replace(own, c=_raised(own.c, clause.rows.A_error, radius[clause.box]))  # noqa: PLW2901
        rows.append(own)
    proved = network if too_large is None else spoiled(network)
    return Problem(proved, prop, lower, upper, tuple(rows), tuple(tuple(m) for m in members), too_large)


def _tensors(prop: Property) -> list[ClauseRows]:
    """The rows of all clauses as tensors, which are parts of two large ones."""
    rows = [clause.rows for clause in prop.clauses]
    if not rows:
        return []
    counts = [len(own) for own in rows]
    A, c = (torch.from_numpy(np.concatenate(part)) for part in ([own.A for own in rows], [own.c for own in rows]))
    B = [None if own.B is None else torch.from_numpy(own.B.copy()) for own in rows]
    return [ClauseRows(*own) for own in zip(A.split(counts), B, c.split(counts), strict=True)]


def _raised(c: Float64[Tensor, " m"], error: Doubles, radius: Float64[Tensor, " n_y"]) -> Float64[Tensor, " m"]:
    """With what A loses by rounding, given a bound of |y|."""
    slack = (torch.from_numpy(error.copy()) @ radius) * (1.0 + gamma(error.shape[1])) + FLOOR
    return torch.from_numpy(np.nextafter((c + slack).numpy(), np.inf))
