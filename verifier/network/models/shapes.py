"""Shapes of a network's inputs, with the axes that a file leaves open resolved by what a property declares.

A first axis that is open is a batch of one, unless the property says otherwise.  Any other open axis needs a property:
one that declares tensors (VNN-LIB 2.0) names all sizes; one that only counts inputs does if a single size is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from verifier.errors import InputError

Shape = tuple[int, ...]
Declared = int | tuple[Shape, ...] | None
"""What a property says about the inputs: how many numbers there are, or the shape of every tensor; None: nothing."""

MOST = 1 << 22
"""Inputs beyond this number could not be stated by any property, and a damaged file may ask for any size."""


@dataclass(frozen=True, slots=True)
class InputShapes:
    """The shape of every input; `batches` if there is one, whose first axis takes any number of samples."""

    shapes: tuple[Shape, ...]
    batches: bool = False

    @property
    def joined(self) -> Shape:
        """The shape of the only input, or that of all of them one after the other."""
        return self.shapes[0] if len(self.shapes) == 1 else (sum(map(math.prod, self.shapes)),)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of one input: sizes, or the names of those that are open (a name of their own if they have none)."""

    name: str
    sizes: tuple[int | str, ...]

    @property
    def known(self) -> int:
        return math.prod(size for size in self.sizes if isinstance(size, int))

    @property
    def names(self) -> list[str]:
        return [size for size in self.sizes if isinstance(size, str)]

    def filled(self, found: dict[str, int]) -> Shape:
        return tuple(found[size] if isinstance(size, str) else size for size in self.sizes)


def input_shapes(sources: Sequence[onnx.ValueInfoProto], declared: Declared = None) -> InputShapes:
    """All axes resolved.  Raises InputError, one sentence, where what is known leaves a choice or no answer."""
    given = [_axes(source) for source in sources]
    opened = [bool(axes.sizes) and isinstance(axes.sizes[0], str) for axes in given]
    parts: list[tuple[list[_Axes], int | None]]
    if isinstance(declared, tuple) and len(declared) == len(given):
        given = [_as_declared(axes, shape) for axes, shape in zip(given, declared, strict=True)]
        parts = [([axes], math.prod(shape)) for axes, shape in zip(given, declared, strict=True)]
    else:
        total = sum(map(math.prod, declared)) if isinstance(declared, tuple) else declared
        parts = [(given, total)]
    shapes = [shape for part, total in parts for shape in _resolved(part, total)]
    for axes, shape in zip(given, shapes, strict=True):
        if 0 in shape or math.prod(shape) > MOST:
            raise InputError(f"input '{axes.name}' has the unusable shape {list(shape)}")
    if sum(map(math.prod, shapes)) > MOST:
        raise InputError(f"the network has {sum(map(math.prod, shapes))} inputs, which is too many")
    return InputShapes(tuple(shapes), len(shapes) == 1 and opened[0] and shapes[0][0] == 1)


def _axes(source: onnx.ValueInfoProto) -> _Axes:
    kind = source.type.tensor_type
    if not kind.HasField("shape"):
        raise InputError(f"the shape of input '{source.name}' is not given")
    sizes: list[int | str] = []
    for place, axis in enumerate(kind.shape.dim):
        if axis.HasField("dim_value") and axis.dim_value >= 0:
            sizes.append(int(axis.dim_value))
        else:
            sizes.append(axis.dim_param or f"axis {place} of '{source.name}'")
    return _Axes(source.name, tuple(sizes))


def _as_declared(axes: _Axes, shape: Shape) -> _Axes:
    """With open axes taken from a declaration of as many axes; others are found by their number of entries."""
    if len(shape) != len(axes.sizes):
        return axes
    sizes = [n if isinstance(size, str) else size for size, n in zip(axes.sizes, shape, strict=True)]
    return _Axes(axes.name, tuple(sizes))


def _resolved(given: list[_Axes], total: int | None) -> list[Shape]:
    """The shapes of inputs with `total` entries together."""
    names = list(dict.fromkeys(name for axes in given for name in axes.names))
    first = {axes.sizes[0] for axes in given if axes.sizes and isinstance(axes.sizes[0], str)}
    others = [name for name in names if name not in first or _stands_elsewhere(given, name)]
    found = {name: 1 for name in names if name not in others}
    if not others and len(given) == 1 and total is not None and len(names) == 1:
        found[names[0]] = _size(given, names[0], {}, total) or 1
    if not others:
        return [axes.filled(found) for axes in given]
    which = ", ".join(f"'{axes.name}'" for axes in given if axes.names)
    opened = f"input {which} leaves axes other than the first open: {', '.join(others)}"
    if total is None:
        raise InputError(f"{opened}; a property gives their sizes: name both on the command line")
    if len(others) > 1:
        unsaid = f"the property declares {total} inputs, which does not say how long each axis is"
        raise InputError(f"{opened}; {unsaid}: declare the shape in VNN-LIB 2.0, or fix it in the file")
    size = _size(given, others[0], found, total)
    if size is None:
        raise InputError(f"{opened}; no size of it gives the {total} inputs that the property declares")
    return [axes.filled({**found, others[0]: size}) for axes in given]


def _stands_elsewhere(given: list[_Axes], name: str) -> bool:
    """Whether a name is that of an axis other than a first one."""
    return any(name in axes.sizes[1:] for axes in given)


def _size(given: list[_Axes], name: str, found: dict[str, int], total: int) -> int | None:
    """The one size of the axes called `name` for which all inputs together have `total` entries."""

    def count(size: int) -> int:
        return sum(math.prod(axes.filled({**found, name: size})) for axes in given)

    low, high = 1, max(1, total)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if count(middle) < total else (low, middle)
    return low if count(low) == total else None
