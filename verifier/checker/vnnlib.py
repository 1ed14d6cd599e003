"""A VNN-LIB file as clauses: boxes and rows, every decimal taken exactly.

Both dialects are read as far as one network with one input and one output goes; anything else is refused.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from .inequality import Target
from .rationals import Array, Rationals
from .scope import LARGEST
from .stream import Unreadable

_TOKEN = re.compile(r";[^\n]*|[()]|\[[^\]()]*\]|[^\s()\[]+")
_DECIMAL = re.compile(r"[+-]?(\d{1,500}\.?\d{0,500}|\.\d{1,500})([eE][+-]?\d{1,3})?", re.ASCII)
_LARGEST_PRODUCT = 200_000

Terms = dict[tuple[str, int], Fraction]  # of ("X", i) and ("Y", j); the constant is ("", 0)
Conjunction = list["Atom"]


@dataclass(frozen=True)
class Atom:
    """The terms, constant included, are at most zero; or below zero if strict."""

    terms: Terms
    strict: bool

    @cached_property
    def variables(self) -> list[tuple[str, int]]:
        return [name for name, a in self.terms.items() if a and name[0]]

    @property
    def bound(self) -> Fraction:
        return -self.terms.get(("", 0), Fraction(0))


@dataclass(frozen=True, eq=False)
class Clause:
    """A point is unsafe if it lies in the box and every row is at most zero; floats enclose the box."""

    low: Array
    high: Array
    rows: tuple[Terms, ...]
    n_y: int

    @cached_property
    def exact(self) -> tuple[Array, Array, Array]:
        """A [m, n_y], B [m, n_x], c [m]: the rows are A y + B x - c."""
        m = len(self.rows)
        a, b, c = (np.full(shape, Fraction(0), object) for shape in ((m, self.n_y), (m, len(self.low)), (m,)))
        for i, row in enumerate(self.rows):
            for (kind, j), value in row.items():
                if kind:
                    (a if kind == "Y" else b)[i, j] = value
                else:
                    c[i] = -value
        return a, b, c

    @cached_property
    def floats(self) -> tuple[Array, Array, Array]:
        """The same, each number rounded."""
        a, b, c = (values.astype(np.float64) for values in self.exact)
        return a, b, c

    def target(self, layer: int, weights: Array) -> Target:
        """The sum of the rows with these weights, at the output."""
        a, b, c = self.floats
        w, size = weights[None], np.abs(weights)[None]
        parts = (w @ a, size @ np.abs(a), w @ b, size @ np.abs(b), -(w @ c), size @ np.abs(c))
        return Target(layer, *parts, summands=len(self.rows))

    def exact_target(self, layer: int, weights: Array) -> Target:
        """The same without rounding, but for the sizes."""
        w = np.array([[Fraction(float(number)) for number in weights]], dtype=object)
        q, d, e = (Rationals.of(np.asarray(w @ part, dtype=object)) for part in self.exact)
        return replace(self.target(layer, weights), q=q, d=d, e=-e)


@dataclass
class _Names:
    """Which variables a file declares."""

    counts: dict[str, int] = field(default_factory=lambda: {"X": 0, "Y": 0})
    tensors: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)

    def scalar(self, name: str) -> None:
        match = re.fullmatch(r"([XY])_(0|[1-9]\d{0,7})", name)
        if match is None or name in self.scalars:
            raise Unreadable(f"the property declares '{name[:40]}', which is no new input X_i or output Y_j")
        self.scalars.add(name)
        self.counts[match[1]] = max(self.counts[match[1]], int(match[2]) + 1)

    def tensor(self, kind: str, name: str, shape: str) -> None:
        letter, sizes = {"declare-input": "X", "declare-output": "Y"}[kind], _integers(shape)
        if self.counts[letter] or name in self.tensors:
            raise Unreadable("the property declares several inputs or outputs")
        self.tensors[name] = letter, sizes
        self.counts[letter] = math.prod(sizes)

    def find(self, word: str, index: str | None) -> tuple[str, int] | None:
        if word in self.scalars and index is None:
            return word[0], int(word[2:])
        if word not in self.tensors:
            return None
        letter, sizes = self.tensors[word]
        place = _integers(index) if index is not None else (0,) * len(sizes) if math.prod(sizes) == 1 else ()
        if len(place) != len(sizes) or any(i >= n for i, n in zip(place, sizes, strict=True)):
            raise Unreadable(f"the property reads an entry of '{word[:40]}' that is not there")
        return letter, int(np.ravel_multi_index(place, sizes)) if sizes else 0


def _integers(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"\[\s*(\d{1,8}\s*(,\s*\d{1,8}\s*)*)?\]", text) is None:
        raise Unreadable(f"the property has '{text[:40]}' where a shape or an index belongs")
    return tuple(int(part) for part in re.findall(r"\d+", text))


def read_property(text: str) -> list[Clause]:
    """All clauses, in the order of docs/proofs.md.  Raises Unreadable."""
    names, facts, alternatives = _Names(), [], []  # type: _Names, Conjunction, list[list[Conjunction]]
    for expression in _parsed(text):
        head = expression[0] if expression else None
        if head == "assert" and len(expression) == 2:
            formula = _formula(names, expression[1])
            if len(formula) == 1:
                facts += formula[0]
            else:
                alternatives.append(formula)
        elif head in ("declare-const", "declare-fun") and expression[-1] == "Real" and expression[2:-1] in ([], [[]]):
            names.scalar(str(expression[1]))
        elif head == "declare-network":
            for kind, name, _, shape in expression[2:]:
                names.tensor(kind, name, shape)
        elif head not in ("vnnlib-version", "set-logic", "check-sat", "set-info"):
            raise Unreadable(f"the property has a command '{str(head)[:40]}' that is not known")
    if names.scalars and len(names.scalars) != sum(names.counts.values()):
        raise Unreadable("the property leaves out the number of an input or output")
    if math.prod(len(a) for a in alternatives) > _LARGEST_PRODUCT:
        raise Unreadable("the property has too many clauses")
    return list(_clauses(facts, alternatives, names.counts))


def _parsed(text: str) -> Iterator[list[Any]]:
    """The commands as nested lists of words."""
    if re.search(r"\r(?!\n)", text):
        raise Unreadable("the property has lines that end in a way which not all readers take for an end")
    stack: list[list[Any]] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if text[end : match.start()].strip():
            raise Unreadable("the property is not made of words and parentheses")
        end = match.end()
        token = match[0]
        if token == "(":
            stack.append([])
        elif token == ")":
            if not stack:
                raise Unreadable("the property closes a parenthesis that is not open")
            done = stack.pop()
            if stack:
                stack[-1].append(done)
            else:
                yield done
        elif token[0] != ";":
            if not stack:
                raise Unreadable(f"the property has a word '{token[:40]}' outside of parentheses")
            stack[-1].append(token)
    if stack or text[end:].strip():
        raise Unreadable("the property ends inside of parentheses")


def _formula(names: _Names, expression: Any) -> list[Conjunction]:
    """In disjunctive form."""
    if not isinstance(expression, list) or len(expression) < 2:
        raise Unreadable("the property asserts something that is no condition")
    head, *rest = expression
    if head == "or":
        return [part for argument in rest for part in _formula(names, argument)]
    if head == "and":
        found: list[Conjunction] = [[]]
        for argument in rest:
            parts = _formula(names, argument)
            if len(found) * len(parts) > _LARGEST_PRODUCT:
                raise Unreadable("the property has too many clauses")
            found = [left + right for left in found for right in parts]
        return found
    left, right = _two(list(_terms(names, rest)))
    if head in ("<=", "<"):
        return [[Atom(_sum(left, right, -1), head == "<")]]
    if head in (">=", ">"):
        return [[Atom(_sum(right, left, -1), head == ">")]]
    if head in ("=", "=="):
        return [[Atom(_sum(left, right, -1), False), Atom(_sum(right, left, -1), False)]]
    raise Unreadable(f"the property has an operator '{str(head)[:40]}' that is not known")


def _two(terms: list[Terms]) -> list[Terms]:
    if len(terms) != 2:
        raise Unreadable("a comparison does not have two sides")
    return terms


def _sum(left: Terms, right: Terms, factor: Fraction | int) -> Terms:
    found = dict(left)
    for name, a in right.items():
        found[name] = found.get(name, Fraction(0)) + factor * a
    return found


def _terms(names: _Names, arguments: Sequence[Any]) -> Iterator[Terms]:
    """Linear terms; an index in brackets belongs to the word in front of it."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        index = arguments[place + 1] if place + 1 < len(arguments) else None
        index = index if isinstance(word, str) and isinstance(index, str) and index.startswith("[") else None
        place += 1 if index is None else 2
        yield _composed(names, word) if isinstance(word, list) else _word(names, word, index)


def _word(names: _Names, word: str, index: str | None) -> Terms:
    found = names.find(word, index)
    if found is not None:
        return {found: Fraction(1)}
    if index is None and _DECIMAL.fullmatch(word):
        return {("", 0): Fraction(word)}
    raise Unreadable(f"the property has a word '{word[:40]}' that is not known")


def _composed(names: _Names, expression: list[Any]) -> Terms:
    head, parts = (expression or [None])[0], list(_terms(names, expression[1:]))
    if head == "+" and parts:
        return _folded(parts, 1)
    if head == "-" and parts:
        return _folded(parts, -1) if len(parts) > 1 else _sum({}, parts[0], -1)
    if head == "*" and parts:
        numbers = [part for part in parts if set(part) <= {("", 0)}]
        others = [part for part in parts if not set(part) <= {("", 0)}]
        if len(others) <= 1:
            factor = math.prod((part.get(("", 0), Fraction(0)) for part in numbers), start=Fraction(1))
            return _sum({}, others[0] if others else {("", 0): Fraction(1)}, factor)
    raise Unreadable("the property has a term that is not linear")


def _folded(parts: Iterable[Terms], factor: int) -> Terms:
    first, *rest = parts
    for part in rest:
        first = _sum(first, part, factor)
    return first


@dataclass(eq=False)
class _Box:
    """Ends of inputs so far: exactly, each with whether it belongs to the box, and as floats that enclose them.

    Lower ends are kept as upper ends of -x, so that the tightest is the smallest on both sides.
    """

    ends: tuple[dict[int, tuple[Fraction, bool]], dict[int, tuple[Fraction, bool]]]
    floats: tuple[Array, Array]  # infinite where there is no end
    empty: Array

    @classmethod
    def whole(cls, n: int) -> _Box:
        return cls(({}, {}), (np.full(n, np.inf), np.full(n, np.inf)), np.zeros(n, np.bool_))

    def within(self, atoms: Iterable[Atom]) -> _Box:
        """Cut by the atoms, each about one input."""
        ends = dict(self.ends[0]), dict(self.ends[1])
        floats, empty = (self.floats[0].copy(), self.floats[1].copy()), self.empty.copy()
        for atom in atoms:
            ((_, i),) = atom.variables
            a = atom.terms["X", i]
            side = 1 if a > 0 else 0
            new = atom.bound / abs(a), not atom.strict
            if i not in ends[side] or new < ends[side][i]:
                ends[side][i] = new
                floats[side][i] = _at_least(new[0])
                if i in ends[1 - side]:
                    width = ends[0][i][0] + ends[1][i][0]
                    empty[i] = width < 0 or (width == 0 and not (ends[0][i][1] and ends[1][i][1]))
        return _Box(ends, floats, empty)


def _clauses(facts: Conjunction, alternatives: list[list[Conjunction]], counts: dict[str, int]) -> Iterator[Clause]:
    """One for every choice among the alternatives, unless its box is empty or a statement about constants is false."""
    known = _Box.whole(counts["X"]).within(filter(_is_end, facts))
    for choice in itertools.product(*alternatives):
        atoms = list(itertools.chain(*choice))
        plain = [atom for atom in (*facts, *atoms) if not _is_end(atom)]
        if any(not atom.variables and (atom.bound < 0 or (atom.bound == 0 and atom.strict)) for atom in plain):
            continue
        box = known.within(filter(_is_end, atoms))
        if not (np.isfinite(box.floats[0]) & np.isfinite(box.floats[1])).all():
            raise Unreadable("an input has no lower or no upper bound")
        if not box.empty.any():
            rows = tuple(atom.terms for atom in plain if atom.variables)
            yield Clause(-box.floats[0], box.floats[1], rows, counts["Y"])


def _is_end(atom: Atom) -> bool:
    """Whether it is about one input alone."""
    return [kind for kind, _ in atom.variables] == ["X"]


def _at_least(value: Fraction) -> float:
    """The smallest float that is not below."""
    if abs(value) > LARGEST:
        raise Unreadable("a bound of an input is too large for the analysis of rounding")
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)
