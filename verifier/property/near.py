"""All points near a centre: within a radius in some norm, and in a box if one is given.

The one place that says what "within eps of x" means, whoever asks: a box, and a ball in it unless the norm is the
maximum norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from verifier.errors import InputError
from verifier.property.ball import Ball
from verifier.property.numbers import enclosure
from verifier.property.property import Boxes

Side = tuple[Fraction, Fraction]


@dataclass(frozen=True, eq=False)
class Near:
    """The x with norm(weight (x - centre)) <= radius that lie in the box `within`; norm None is the maximum norm.

    Requires: numbers in the coordinates of the network, as rationals; one weight per entry, all of them positive.
    Raises InputError if no point is left.
    """

    centre: Sequence[Fraction]
    weight: Sequence[Fraction]
    radius: Fraction
    norm: int | None = None
    within: Sequence[Side] | None = None

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise InputError(f"eps is {float(self.radius):g}, it must not be negative")
        if self.ball is not None and not self.ball.holds(self._nearest()):
            raise InputError("every point of the given range is further than eps from the centre")

    @property
    def sides(self) -> list[Side]:
        """The box, exactly."""
        found = []
        for i, (c, w) in enumerate(zip(self.centre, self.weight, strict=True)):
            low, high = c - self.radius / w, c + self.radius / w
            if self.within is not None:
                low, high = max(low, self.within[i][0]), min(high, self.within[i][1])
            if low > high:
                raise InputError(f"value {i} of the centre is further than eps from the given range")
            found.append((low, high))
        return found

    @property
    def ball(self) -> Ball | None:
        """None where the box says it all."""
        if self.norm is None or not self.radius:
            return None
        return Ball(self.norm, tuple(self.centre), tuple(self.weight), self.radius)

    def boxes(self) -> Boxes:
        """The box as floats."""
        return boxes_of(self.sides)

    def _nearest(self) -> list[Fraction]:
        """The point of the box next to the centre."""
        return [min(max(c, low), high) for c, (low, high) in zip(self.centre, self.sides, strict=True)]


def boxes_of(sides: Sequence[Side]) -> Boxes:
    """A single box of exact sides."""
    low, high = (np.array([[enclosure(side[end]) for side in sides]]) for end in (0, 1))
    return Boxes.enclosed((low[..., 0], low[..., 1]), (high[..., 0], high[..., 1]))
