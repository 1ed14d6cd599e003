"""What all networks have in common, however they are given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verifier.errors import InputError
from verifier.network.network import Network

if TYPE_CHECKING:
    from verifier.network.models.front import Front

Array = np.ndarray[Any, np.dtype[Any]]


class SourceModel(ABC):
    """A network as it was given, which its own runtime runs.  Inputs and outputs are flat vectors in C order.

    `input_shape` includes the batch axis, `dtype` is the precision of its inputs, and `sha256` its identity.  What
    `run` answers is what the lowered network and every counterexample are judged by.
    """

    sha256: str
    input_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: Path | None = None
    front: Front | None = None  # what stands before the network that was given, if something was put there

    @abstractmethod
    def network(self, far_bounds: bool = False) -> Network:
        """The lowered network (`far_bounds` as in `Reading`)."""

    @abstractmethod
    def _call(self, x: Array) -> Array:
        """What the runtime answers to one input of `input_shape`."""

    @property
    def rounding(self) -> np.dtype[Any]:
        """The precision with the fewest digits that it computes in."""
        return self.dtype

    @property
    def widened(self) -> SourceModel | None:
        """The same network with float32 in the place of half precision, where it computes in that."""
        return None

    @property
    def n_in(self) -> int:
        return math.prod(self.input_shape)

    @property
    def n_out(self) -> int:
        return math.prod(self.output_shape)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """As the runtime returns it for one sample; what a file declares may leave axes open."""
        return tuple(self._call(np.zeros(self.input_shape, self.dtype)).shape)

    def run(self, x: Array) -> Array:
        """Outputs [..., n_y] at x [n_x] or [B, n_x], by the runtime itself in its own precision.

        A single point is always evaluated on its own.  Several may be passed in one call if that gives the same
        answers; they may then differ from single evaluations in the last digits.
        """
        points = np.asarray(x, dtype=self.dtype)
        if points.shape[-1:] != (self.n_in,) or points.ndim > 2:
            raise InputError(f"the network takes {self.n_in} inputs, not an array of shape {points.shape}", self.path)
        if points.ndim == 1:
            return self._single(points)
        together = self._together(points) if len(points) > 1 else None
        if together is not None:
            return together
        rows = [self._single(point) for point in points]
        return np.stack(rows) if rows else np.zeros((0, self.n_out), self.dtype)

    def _single(self, point: Array) -> Array:
        return self._call(point.reshape(self.input_shape)).reshape(-1)

    def _together(self, points: Array) -> Array | None:
        """All points in one call, or None if they are better evaluated one by one."""
        return None
