"""Patches: a rectangle of an image may take any values, the rest of it stays as it is.

At one place that is a box, at every place a union of boxes, one per place; both have a text in VNN-LIB 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.arguments import shown, whole_number
from verifier.errors import InputError
from verifier.pixels import ImageLayout, is_flat, layout
from verifier.property.near import Side
from verifier.property.numbers import enclosure
from verifier.property.property import Bools, Boxes, Property
from verifier.property.robustness import Number, Robustness, Scaling, side_atoms
from verifier.property.vnnlib.clauses import MAX_ATOMS, MAX_CLAUSES


@dataclass(frozen=True, slots=True, eq=False)
class Patches(Robustness):
    """The images that are `centre` but for a rectangle of `size` (rows, columns), with any values of the range `clip`.

    All channels of its pixels change.  `at` is the row and the column of its first pixel, from 0; None is every place.
    Requires: the centre has the axes of an image (channels first, or last where there are 1 or 3 of them), or is flat
    and of a size that only usual images have; `clip` is in pixel space and contains the centre.
    """

    size: tuple[int, int]
    clip: tuple[Number, Number]
    at: tuple[int, int] | None = None
    scaling: Scaling = field(default_factory=Scaling)

    def property(self) -> Property:
        self._winner()
        fixed, free, covered = self._sides()
        ends = []
        for end in (0, 1):
            still, moved = (np.array([enclosure(side[end]) for side in sides]) for sides in (fixed, free))
            pair = (np.where(covered, moved[:, k], still[:, k]) for k in (0, 1))
            ends.append(tuple(pair))
        return self._over(Boxes.enclosed((ends[0][0], ends[0][1]), (ends[1][0], ends[1][1])))

    def vnnlib(self) -> str:
        self._winner()
        lines = [*self._lines()]
        rows, columns = self.size
        where = "at every place" if self.at is None else f"at row {self.at[0]} and column {self.at[1]}"
        values = f"values from {self.clip[0]} to {self.clip[1]} before normalisation"
        return self._text(f"under every patch of {rows} x {columns} pixels {where}, {values}", lines)

    def scales(self) -> tuple[list[Fraction], list[Fraction]]:
        return self.scaling.per_value(self._layout().shape)

    def _lines(self) -> Iterator[str]:
        """What is said about the inputs: a box, or one of several."""
        fixed, free, covered = self._sides()
        still, moved = ([side_atoms(i, side) for i, side in enumerate(sides)] for sides in (fixed, free))
        boxes = ([pair for i, c in enumerate(row) for pair in (moved if c else still)[i]] for row in covered.tolist())
        if len(covered) == 1:
            yield from (f"(assert {atom})" for atom in next(boxes))
            return
        yield "(assert (or"
        yield from (f"    (and {' '.join(box)})" for box in boxes)
        yield "))"

    def _sides(self) -> tuple[list[Side], list[Side], Bools]:
        """Where every input is outside of a patch, and inside; and per place which inputs are inside [N, n_x]."""
        low, high = self._clipping(self.clip)
        scales = zip(*self.scales(), strict=True)
        free = [((low - mean) / std, (high - mean) / std) for mean, std in scales]
        return [(value, value) for value in self.point()], free, self._covered()

    def _covered(self) -> Bools:
        """Per place of the patch which inputs it covers."""
        image, places = self._layout(), self._places()
        if 2 * len(places) * self.centre.size > MAX_ATOMS or len(places) * self.classes > MAX_CLAUSES:
            counts = f"{self.centre.size} inputs and {self.classes} classes"
            raise InputError(f"patch: {len(places)} places are too many with {counts}; say at which one it is")
        marks = np.zeros((len(places), self.centre.size))
        for mark, (i, j) in zip(marks, places, strict=True):
            image.image(mark)[i : i + self.size[0], j : j + self.size[1]] = 1
        return marks > 0

    def _places(self) -> list[tuple[int, int]]:
        """The first pixels of all patches.  Raises InputError if they do not fit into the image."""
        height, width, _ = self._layout().image(np.zeros(self.centre.size)).shape
        rows, columns = _pair(self.size, "patch", 1)
        if rows > height or columns > width:
            raise InputError(f"patch: {rows} x {columns} pixels do not fit into an image of {height} x {width}")
        last = height - rows, width - columns
        if self.at is None:
            return [(i, j) for i in range(last[0] + 1) for j in range(last[1] + 1)]
        place = _pair(self.at, "at", 0)
        if place[0] > last[0] or place[1] > last[1]:
            raise InputError(
                f"at: a patch of {rows} x {columns} pixels at row {place[0]} and column {place[1]} leaves the image of "
                f"{height} x {width}; the last place is {last[0]}, {last[1]}"
            )
        return [place]

    def _layout(self) -> ImageLayout:
        """How the centre is an image.  Raises InputError if it is none."""
        shape = self.centre.shape
        axes = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
        if (found := layout(shape)) is not None:
            return found
        if is_flat(shape) or len(axes) not in (2, 3):
            raise InputError(
                f"patch: an input of shape {shape} is no image; give it as height x width or channels x height x width"
            )
        return ImageLayout((axes[0], axes[1], axes[2]) if len(axes) == 3 else (1, axes[0], axes[1]))


def _pair(values: Any, what: str, least: int) -> tuple[int, int]:
    """Two whole numbers.  Raises InputError for anything else."""
    try:
        first, second = values
    except (TypeError, ValueError):
        raise InputError(f"{what} is a pair of whole numbers, rows and columns, not {shown(values)}") from None
    return whole_number(first, what, least, 2**31), whole_number(second, what, least, 2**31)
