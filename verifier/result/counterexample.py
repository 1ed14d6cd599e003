"""Counterexamples: points that the original network file, run by onnxruntime, maps into the unsafe set.

A witness that the network's own run confirms and real arithmetic does not is kept in reserve: a proof outweighs it, and
so does a witness that real arithmetic confirms; it is the answer where neither is found.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from verifier.errors import SoundnessError
from verifier.processes import shared_file
from verifier.property.joint import Joint
from verifier.property.property import Property, Variable

_REPLAYED = object()  # only `replay` holds it

HEADER = 8
"""Bytes that tell the length of what follows them."""


@runtime_checkable
class Runnable(Protocol):
    """A network in its original form: one sample [n_x] or several [B, n_x] in, outputs in the same arrangement.

    One that takes float64 or float16 says so by an attribute `dtype`.
    """

    def run(self, x: NDArray[np.float32]) -> NDArray[np.floating]: ...


def precision(model: Runnable) -> np.dtype[Any]:
    """The type of the numbers that witnesses of a network are made of: that of its inputs, or float32."""
    return np.dtype(getattr(model, "dtype", None) or np.float32)


Judge = Callable[[NDArray[np.floating], int], bool]
"""Whether in real arithmetic, too, the point of a box (by its number) that is nearest to a witness is unsafe."""


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """A replayed witness.  Only `replay` can make one.

    Guarantees: `y` is what the original network answers to the point `x` (float32, or float64 or float16 if that is
    what the network takes), and both satisfy clause `clause` of the property in exact arithmetic.  If `exact` is false,
    some input of the clause's box has no such float between its bounds and one next to them stands in for it.  If
    something was put before the network that was given, that one gives an unsafe answer to the `image`, too.

    If it is `sharp`, a point of the decimal box (x itself if it lies inside, else the nearest one) is unsafe in real
    arithmetic, too: then no proof can contradict it.  Otherwise all that is known is what the network's own run gave.
    """

    x: NDArray[np.floating]
    y: NDArray[np.floating]
    clause: int
    exact: bool = True
    sharp: bool = False
    variables: tuple[Variable, ...] | None = None  # the tensors that a VNN-LIB 2.0 property declares, in order
    joint: Joint | None = None  # how the inputs and outputs of the joint network are those that are declared
    shape: tuple[int, ...] | None = None  # of the network's input, if it has one
    image: NDArray[np.floating] | None = None  # what the inputs stand for, if a layer makes an image of them
    token: InitVar[object] = None

    def __post_init__(self, token: object) -> None:
        if token is not _REPLAYED:
            raise SoundnessError("a counterexample must come from a replay by the original network")

    @property
    def input(self) -> NDArray[np.floating]:
        """The point in the shape of the network's input, batch axis included; flat if it has several inputs."""
        return self.x if self.shape is None else self.x.reshape(self.shape)

    @property
    def declared(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """The point and the answers in terms of what the property declares: equal inputs again, and no products."""
        if self.joint is None:
            return self.x, self.y
        return self.x[list(self.joint.shared)], self.y[: self.joint.n_y]

    def text(self) -> str:
        """The witness as VNN-COMP wants it from the second line of a result file on, in the property's version."""
        if self.variables is not None:
            return self._text_2(self.variables)
        pairs = [f"(X_{i} {number(v)})" for i, v in enumerate(self.x)]
        pairs += [f"(Y_{i} {number(v)})" for i, v in enumerate(self.y)]
        return "(" + "\n ".join(pairs) + ")\n"

    def _text_2(self, variables: Sequence[Variable]) -> str:
        """Each tensor: its declaration on a line, then its values in row-major order, one per line."""
        x, y = self.declared
        values = {"input": iter(x), "output": iter(y)}
        lines = []
        for variable in variables:
            shape = ",".join(str(n) for n in variable.shape)
            lines.append(f"{variable.name} {variable.dtype} [{shape}]")
            lines += [number(v, positional=True) for v in islice(values[variable.kind], variable.size)]
        return "\n".join(lines) + "\n"


def replay(
    candidates: NDArray[np.floating], model: Runnable, prop: Property, box: int, judge: Judge | None = None
) -> Counterexample | None:
    """The first candidate that is a sharp counterexample; else the first that is one at all, or None.

    Requires: candidates [n_x] or [B, n_x], points in or near box number `box` of the property.
    Guarantees: each candidate is rounded to the network's precision and clipped into the box (rounded inward), moved
    into the ball if there is one, run by the original network, and judged in exact arithmetic.  Without a `judge` no
    counterexample is sharp.
    """
    points, dtype = np.atleast_2d(candidates), precision(model)
    lower, upper = (end[box] for end in prop.boxes.ends(dtype))
    points = points[np.isfinite(points).all(axis=1)]
    points = np.clip(points, lower, upper).astype(dtype)  # rounding keeps the order, so it stays in the box
    if prop.ball is not None:
        points = np.stack([prop.ball.inside(x, (lower, upper)) for x in points]) if len(points) else points
    blunt: Counterexample | None = None
    for x in points:
        y = np.asarray(model.run(x))  # one by one, as a judge would: a batch may round differently
        clause = prop.witnessed(x, y) if np.isfinite(y).all() else None
        if clause is None:
            continue
        front = getattr(model, "front", None)
        if front is not None and not _confirmed(front.answer(x), x, prop):
            continue
        own = prop.clauses[clause].box
        sharp, exact = judge is not None and judge(x, own), bool(prop.boxes.holds_floats(dtype)[own])
        shape = getattr(model, "input_shape", None)
        image = None if front is None else front.image(x)
        found = Counterexample(x, y, clause, exact, sharp, prop.variables, prop.joint, shape, image, token=_REPLAYED)
        if sharp or judge is None:
            return found
        blunt = blunt or found
    return blunt


def _confirmed(y: NDArray[np.floating], x: NDArray[np.floating], prop: Property) -> bool:
    """Whether the network behind a layer says the same to the image of a point: rounding may differ between both."""
    return bool(np.isfinite(y).all()) and prop.witnessed(x, y) is not None


def number(value: np.floating | float, positional: bool = False) -> str:
    """A decimal that reads back as exactly this value, in double as in single precision.

    The double's shortest form is used, not the single's: a reader that keeps doubles would get another number from
    0.1 than from the float32 nearest to it, and that number may lie outside the box.
    """
    if positional:  # VNN-LIB 2.0 numbers have no exponent
        return np.format_float_positional(np.float64(value), unique=True, trim="0")
    return repr(float(value))


class Reserve:
    """Keeps the first witness that it is given, by this process or any fork of it.

    Any process of a run may come across one, so it is kept in memory that forks share.
    """

    def __init__(self) -> None:
        self._own: Counterexample | None = None
        self._file = shared_file(self, "reserve")

    def keep(self, witness: Counterexample) -> None:
        """Takes a witness, unless there is one already."""
        if self.found() is not None:
            return
        self._own = witness
        if self._file is None:
            return
        import fcntl

        fcntl.lockf(self._file, fcntl.LOCK_EX)  # a process that is killed leaves it open to the next one
        try:
            if not self._length():
                data = pickle.dumps(witness, protocol=5)
                _write(self._file, data, HEADER)
                _write(self._file, len(data).to_bytes(HEADER, "little"), 0)  # last: now it is whole
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def found(self) -> Counterexample | None:
        """The witness, whichever process found it; it stays the same from then on."""
        if self._own is None and self._file is not None and (length := self._length()):
            self._own = pickle.loads(_read(self._file, length, HEADER))
        return self._own

    def _length(self) -> int:
        assert self._file is not None
        return int.from_bytes(os.pread(self._file, HEADER, 0), "little")


def _write(file: int, data: bytes, place: int) -> None:
    while data:
        done = os.pwrite(file, data, place)
        data, place = data[done:], place + done


def _read(file: int, length: int, place: int) -> bytes:
    data = b""
    while len(data) < length:
        data += os.pread(file, length - len(data), place + len(data))
    return data
