"""Counterexamples: points that the original network file, run by onnxruntime, maps into the unsafe set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from verifier.errors import SoundnessError
from verifier.property.property import Property, Variable

_REPLAYED = object()  # only `replay` holds it


@runtime_checkable
class Runnable(Protocol):
    """A network in its original form: one sample [n_x] or several [B, n_x] in, outputs in the same arrangement."""

    def run(self, x: NDArray[np.float32]) -> NDArray[np.floating]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """A replayed witness.  Only `replay` can make one.

    Guarantees: `y` is what the original network answers to the float32 point `x`, and both satisfy clause `clause`
    of the property in exact arithmetic.  If `exact` is false, some input of the clause's box has no float32 value
    between its bounds and the nearest one stands in for it.
    """

    x: NDArray[np.float32]
    y: NDArray[np.floating]
    clause: int
    exact: bool = True
    variables: tuple[Variable, ...] | None = None  # the tensors that a VNN-LIB 2.0 property declares, in order
    token: InitVar[object] = None

    def __post_init__(self, token: object) -> None:
        if token is not _REPLAYED:
            raise SoundnessError("a counterexample must come from a replay by the original network")

    def text(self) -> str:
        """The witness as VNN-COMP wants it from the second line of a result file on, in the property's version."""
        if self.variables is not None:
            return self._text_2(self.variables)
        pairs = [f"(X_{i} {number(v)})" for i, v in enumerate(self.x)]
        pairs += [f"(Y_{i} {number(v)})" for i, v in enumerate(self.y)]
        return "(" + "\n ".join(pairs) + ")\n"

    def _text_2(self, variables: Sequence[Variable]) -> str:
        """Each tensor: its declaration on a line, then its values in row-major order, one per line."""
        values = {"input": iter(self.x), "output": iter(self.y)}
        lines = []
        for variable in variables:
            shape = ",".join(str(n) for n in variable.shape)
            lines.append(f"{variable.name} {variable.dtype} [{shape}]")
            lines += [number(v, positional=True) for v in islice(values[variable.kind], variable.size)]
        return "\n".join(lines) + "\n"


def replay(candidates: NDArray[np.floating], model: Runnable, prop: Property, box: int) -> Counterexample | None:
    """The first candidate that is a counterexample, or None.

    Requires: candidates [n_x] or [B, n_x], points in or near box number `box` of the property.
    Guarantees: each candidate is rounded to float32 and clipped into the box (rounded inward), run by the original
    network, and judged in exact arithmetic.
    """
    points = np.atleast_2d(candidates)
    lower, upper = prop.boxes.lower_in[box], prop.boxes.upper_in[box]
    points = points[np.isfinite(points).all(axis=1)]
    points = np.clip(points, lower, upper).astype(np.float32)  # rounding keeps the order, so it stays in the box
    for x in points:
        y = np.asarray(model.run(x))  # one by one, as a judge would: a batch may round differently
        clause = prop.witnessed(x, y) if np.isfinite(y).all() else None
        if clause is not None:
            exact = bool(prop.boxes.exact[prop.clauses[clause].box])
            return Counterexample(x, y, clause, exact, prop.variables, token=_REPLAYED)
    return None


def number(value: np.floating | float, positional: bool = False) -> str:
    """A decimal that reads back as exactly this value, in double as in single precision.

    The double's shortest form is used, not the single's: a reader that keeps doubles would get another number from
    0.1 than from the float32 nearest to it, and that number may lie outside the box.
    """
    if positional:  # VNN-LIB 2.0 numbers have no exponent
        return np.format_float_positional(np.float64(value), unique=True, trim="0")
    return repr(float(value))
