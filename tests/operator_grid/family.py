"""A family of cases: the attributes of one operator with their values, of which every combination is a case."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operator_grid.case import DOUBLE, FLOAT, OLDEST, Case, Sketch, newest_opset

Settings = Mapping[str, Any]
MOSTLY_FLOAT = (*[FLOAT] * 11, DOUBLE)
"""For operators that onnxruntime has in float32 only, at the time of writing."""

Build = Callable[[Sketch, Settings], Case | None]


@dataclass(frozen=True)
class Family:
    """`build` makes the case of one combination of `axes`, or None if the combination means nothing.

    Case i takes the i-th combination of a fixed shuffled order, so that the first few are spread over the whole grid;
    beyond the last combination it begins again with other shapes and numbers.  `count` says how many belong to the
    fast tests.
    """

    name: str
    build: Build
    axes: Mapping[str, Sequence[Any]]
    count: int
    since: int = OLDEST
    types: Sequence[int] = (FLOAT, FLOAT, DOUBLE)

    @property
    def all_axes(self) -> dict[str, Sequence[Any]]:
        common: dict[str, Sequence[Any]] = {
            "opset": range(self.since, newest_opset() + 1),
            "dtype": self.types,
        }
        return {**common, **self.axes}

    def case(self, number: int) -> Case | None:
        axes = self.all_axes
        total = math.prod(len(values) for values in axes.values())
        rest = (number % total) * _stride(total) % total
        settings = {}
        for name, values in axes.items():
            rest, position = divmod(rest, len(values))
            settings[name] = values[position]
        seed = zlib.crc32(f"{self.name}:{number}".encode())
        sketch = Sketch(f"{self.name}:{number}", settings["opset"], settings["dtype"], seed)
        return self.build(sketch, settings)


def _stride(total: int) -> int:
    """A number without a common divisor with `total`, near to the golden section of it."""
    stride = max(round(total * 0.6180339887), 1)
    while math.gcd(stride, total) > 1:
        stride += 1
    return stride
