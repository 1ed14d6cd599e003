"""The mean of primal points on the way of an ascent: where the oracle of masks is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.shapes import Int, Tensor


@dataclass(eq=False)
class Average:
    """The mean of primal points: x[j] of all sources and, where the dual has it, z at the kinks of all groups.

    Near the end of an ascent it approximates a solution of the primal linear program, in its interior.  Groups that
    nobody reads have no values.
    """

    rows: Int[Tensor, " d"]  # the regions that the points belong to, in ascending order
    count: int = 0
    _values: tuple[Tensor | None, ...] = ()
    _z: tuple[Tensor, ...] = ()

    def follow(self, rows: Int[Tensor, " d"]) -> None:
        """Forget regions that have left the batch."""
        if len(rows) == len(self.rows):
            return
        kept = torch.searchsorted(self.rows, rows)
        self.rows = rows
        self._values = tuple(None if v is None else v[kept] for v in self._values)
        self._z = tuple(v[kept] for v in self._z)

    def add(self, values: Sequence[Tensor | None], z: Sequence[Tensor] = ()) -> None:
        """Take one more point of the regions `rows`."""
        self.count += 1
        if self.count == 1:
            self._values = tuple(None if v is None else v.clone() for v in values)
            self._z = tuple(v.clone() for v in z)
            return
        for total, other in zip((*self._values, *self._z), (*values, *z), strict=True):
            if total is not None and other is not None:
                total.add_(other)

    def mean(self) -> tuple[list[Tensor | None], list[Tensor]]:
        return [None if v is None else v / self.count for v in self._values], [v / self.count for v in self._z]


@dataclass(eq=False)
class Averaging:
    """Collects the average over the last iterations of an ascent.

    If the ascent ends before them, `average` stays None or holds fewer points.
    """

    last: int = 40
    average: Average | None = None

    def at(self, t: int, iterations: int, rows: Int[Tensor, " d"]) -> Average | None:
        """Where iteration t adds its point, if it is one of the last."""
        if t < iterations - self.last:
            return None
        if self.average is None:
            self.average = Average(rows)
        self.average.follow(rows)
        return self.average
