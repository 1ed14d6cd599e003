"""What the property tests share: comparing properties bit by bit, and a second, naive meaning of formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from verifier.property.property import Property

COMPARE = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def assert_same(a: Property, b: Property) -> None:
    """Both properties are equal to the last bit."""
    assert (a.n_x, a.n_y, a.warnings) == (b.n_x, b.n_y, b.warnings)
    for name in ("lower", "upper", "lower_in", "upper_in", "exact"):
        _assert_bits(getattr(a.boxes, name), getattr(b.boxes, name))
    assert [clause.box for clause in a.clauses] == [clause.box for clause in b.clauses]
    for left, right in zip(a.clauses, b.clauses, strict=True):
        assert left.rows.exact == right.rows.exact
        for name in ("A", "B", "c", "strict", "A_error"):
            _assert_bits(getattr(left.rows, name), getattr(right.rows, name))


def _assert_bits(left: np.ndarray | None, right: np.ndarray | None) -> None:
    assert (left is None) == (right is None)
    if left is not None and right is not None:
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()


@dataclass(frozen=True)
class Node:
    """A formula or a term as the file nests it: a head and its arguments, which are nodes or words."""

    head: str
    arguments: tuple[Node | str, ...]

    def text(self, gap: str = " ") -> str:
        words = (a if isinstance(a, str) else a.text(gap) for a in self.arguments)
        return f"({self.head}{gap}{gap.join(words)})"


def value(node: Node | str, point: dict[str, Fraction]) -> Fraction:
    """The value of a term."""
    if isinstance(node, str):
        return point[node] if node in point else Fraction(node)
    values = [value(a, point) for a in node.arguments]
    if node.head == "+":
        return sum(values, Fraction(0))
    if node.head == "*":
        product = Fraction(1)
        for v in values:
            product *= v
        return product
    assert node.head == "-"
    return -values[0] if len(values) == 1 else values[0] - sum(values[1:], Fraction(0))


def holds(node: Node | str, point: dict[str, Fraction]) -> bool:
    """The truth of a formula, read off its nesting."""
    assert isinstance(node, Node)
    if node.head in ("and", "or"):
        results = [holds(a, point) for a in node.arguments]
        return all(results) if node.head == "and" else any(results)
    left, right = (value(a, point) for a in node.arguments)
    return COMPARE[node.head](left, right)


def named(x: Sequence[float], y: Sequence[float]) -> dict[str, Fraction]:
    """A point by the names of VNN-LIB 1.0."""
    point = {f"X_{i}": Fraction(v) for i, v in enumerate(x)}
    return point | {f"Y_{j}": Fraction(v) for j, v in enumerate(y)}


def declared(n_x: int, n_y: int) -> str:
    """Declarations of VNN-LIB 1.0."""
    names = [f"X_{i}" for i in range(n_x)] + [f"Y_{j}" for j in range(n_y)]
    return "".join(f"(declare-const {name} Real)\n" for name in names)
