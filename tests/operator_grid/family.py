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
        rest = _shuffled(number % total, total)
        settings = {}
        for name, values in axes.items():
            rest, position = divmod(rest, len(values))
            settings[name] = values[position]
        seed = zlib.crc32(f"{self.name}:{number}".encode())
        sketch = Sketch(f"{self.name}:{number}", settings["opset"], settings["dtype"], seed)
        return self.build(sketch, settings)


def _shuffled(number: int, total: int) -> int:
    """A fixed permutation of the numbers below `total`: a network of Feistel, repeated until its result is one."""
    half = (max(total - 1, 1).bit_length() + 1) // 2
    while True:
        left, right = divmod(number, 1 << half)
        for turn in range(4):
            left, right = right, left ^ (zlib.crc32(f"{turn}:{right}".encode()) & ((1 << half) - 1))
        number = (left << half) | right
        if number < total:
            return number
