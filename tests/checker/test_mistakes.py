"""The checker keeps its laws; and copies of it with one mistake each do not, so that the laws say something."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from checker.finders import LAWS, con, conned
from checker.forging import Problem
from checker.kits import KIT, Mistake, mistaken


@pytest.mark.parametrize("law", LAWS)
def test_the_checker_keeps_its_laws(law: str) -> None:
    with np.errstate(all="ignore"):
        assert LAWS[law](KIT) is None


@pytest.mark.slow
def test_no_con_man_gets_through() -> None:
    assert conned(KIT, range(10, 120)) is None


def test_the_proofs_of_the_con_man_are_nearly_right() -> None:
    """Where nothing is unsafe most of those that leave nothing out are accepted."""
    found: Counter[bool] = Counter()
    for seed in range(3):
        given = con(seed)
        problem = given.problem
        for number, clause in enumerate(problem.clauses):
            problem = problem.raised(number, [Fraction(-4)] * len(clause.rows))
        found.update(Problem(problem.model, problem.clauses).judge(body)[0] is None for body in given.bodies())
    assert found[True] > 40


FALSE, TIGHT, HIGH, ROUNDED, EXACT, TOGETHER, TEXT, NET = LAWS
RULES, SCOPE, KERNEL, SHARES, MAPS, WORDS = (
    "nodes.py",
    "scope.py",
    "inequality.py",
    "witness.py",
    "maps.py",
    "vnnlib.py",
)
MISTAKES: dict[str, tuple[str, Mistake]] = {
    # rules
    "emptiness is believed": (
        FALSE,
        Mistake(RULES, "if not scope.lower[k - 1][0, i] > scope.upper[k - 1][0, i]:", "if False:"),
    ),
    "a tolerance": (FALSE, Mistake(RULES, "if not bound > 0:", "if not bound > -0.01:")),
    "one closing for all clauses": (
        FALSE,
        Mistake(RULES, "return cls(row, opened - {row.clause})", "return cls(row, frozenset())"),
    ),
    "a part that comes twice": (FALSE, Mistake(RULES, "[self.first, opened - self.first]", "[self.first, self.first]")),
    "a neuron passes on both sides": (
        FALSE,
        Mistake(
            RULES, "scope.passing(self.group, some), scope.blocking", "scope.passing(self.group, some), scope.passing"
        ),
    ),
    "a neuron blocks on both sides": (
        FALSE,
        Mistake(RULES, "[scope.passing(self.group, some), scope", "[scope.blocking(self.group, some), scope"),
    ),
    "the upper part of a cut is forgotten": (
        FALSE,
        Mistake(RULES, "[replace(scope, high=high), replace(scope, low=low)]", "[replace(scope, high=high)] * 2"),
    ),
    "the lower part of a cut is forgotten": (
        FALSE,
        Mistake(RULES, "[replace(scope, high=high), replace(scope, low=low)]", "[replace(scope, low=low)] * 2"),
    ),
    "planes of some clauses suffice": (
        FALSE,
        Mistake(RULES, "if {row.clause for row in rows} != opened:", "if False:"),
    ),
    "what is cut off is not looked at": (FALSE, Mistake(RULES, "            if len(bad):", "            if False:")),
    "the other side is cut off": (
        FALSE,
        Mistake(RULES, "(gone_low if side else gone_high)[e, j]", "(gone_high if side else gone_low)[e, j]"),
    ),
    "weights below zero": (FALSE, Mistake(RULES, "(weights >= 0).all() and ", "")),
    "upper bounds with the wrong sign": (
        TIGHT,
        Mistake(RULES, "found[start:middle], -found[middle:end]", "found[start:middle], found[start:middle]"),
    ),
    "the bounds of the first scope for all": (
        TIGHT,
        Mistake(
            RULES,
            "[Judged([scope.known_at(known, d)]) for d, scope in enumerate(part)]",
            "[Judged([scope.known_at(known, 0)]) for d, scope in enumerate(part)]",
        ),
    ),
    "a clause without a tree": (FALSE, Mistake("tree.py", "if not named.all():", "if False:")),
    "the box of one clause for all": (FALSE, Mistake("tree.py", "for c in members])", "for c in members[:1]])")),
    "children that nobody reads": (
        FALSE,
        Mistake("tree.py", "self.waiting.extend(reversed(place.below))", "self.waiting.extend(place.below[:1])"),
    ),
    "faults that are forgotten": (
        FALSE,
        Mistake("tree.py", "                if self.fault is not None:\n", "                if False:\n"),
    ),
    "signs that a row does not force": (
        FALSE,
        Mistake("implied.py", "any((part < 0).any() for part in r.values())", "False"),
    ),
    "signs in spite of a constant": (FALSE, Mistake("implied.py", "or not (constant >= 0).all()", "")),
    # scopes
    "intervals that are too narrow": (TIGHT, Mistake(SCOPE, "spread = radius + 2.0", "spread = 0.9 * radius + 2.0")),
    "signs the other way": (
        TIGHT,
        Mistake(SCOPE, "np.where(some, at, -np.inf), np.full", "np.where(some, -np.inf, at), np.full"),
    ),
    "nothing for rounding": (ROUNDED, Mistake(SCOPE, "bound / (1.0 - bound) * price + TINY", "0.0 * price")),
    "scopes of other rows": (
        TOGETHER,
        Mistake(SCOPE, "tuple(part[index] for part in parts)", "tuple(part[index[::-1]] for part in parts)"),
    ),
    # the inequality, besides what tests/checker/test_inequality.py finds
    "no bias": (
        HIGH,
        Mistake(KERNEL, "(mu * layer.bias_of(mu)).sum(axis=1)", "(abs(mu * layer.bias_of(mu))).sum(axis=1)"),
    ),
    "h of the better case": (
        HIGH,
        Mistake(KERNEL, "np.minimum(passes, blocks), either", "np.maximum(passes, blocks), either"),
    ),
    # cuts
    "off at the wrong end": (HIGH, Mistake(SHARES, "where(both, -radius,", "where(both, radius,")),
    "gap at the wrong end": (HIGH, Mistake(SHARES, "where(none, radius,", "where(none, -radius,")),
    "masks of rows at the wrong end": (
        HIGH,
        Mistake(SHARES, "off = off + np.minimum(kept", "off = off + np.maximum(kept"),
    ),
    "half of a cut moves": (HIGH, Mistake(SHARES, "0.5 * part * self.signed[j]", "0.0 * part * self.signed[j]")),
    # going forward
    "unknowns that are too small": (TIGHT, Mistake("zonotope.py", "0.5 * np.maximum((1.0", "0.25 * np.maximum((1.0")),
    "unknowns of others": (TIGHT, Mistake("zonotope.py", "dense[:, s : s + a] +=", "dense[:, :a] +=")),
    "slopes of neurons that block": (
        TIGHT,
        Mistake("zonotope.py", "np.where(low >= 0, 1.0, 0.0)", "np.where(low >= 0, 0.5, 0.0)"),
    ),
    # rationals
    "rationals that confirm anything": (
        EXACT,
        Mistake("proving.py", 'raise Rejected(f"exact arithmetic does not confirm {what}")', "pass"),
    ),
    # maps and networks
    "entries that are read twice": (
        NET,
        Mistake(
            MAPS, "np.add.reduceat(terms[:, self.order], self.starts, axis=1)", "terms[:, self.order][:, self.starts]"
        ),
    ),
    "windows one entry off": (
        NET,
        Mistake(MAPS, "found[values, np.arange(len(values)) - starts[values]] = order", "found[values, 0] = order"),
    ),
    "a slope that is turned over": (
        NET,
        Mistake("operators.py", ".plus(bent.scaled(-slope, one))", ".plus(bent.scaled(slope, one))"),
    ),
    "the smaller of a pair": (
        NET,
        Mistake(
            "windows.py",
            "value.taken(pairs[differ, 1]).minus(value.taken(pairs[differ, 0]))",
            "value.taken(pairs[differ, 0]).minus(value.taken(pairs[differ, 1]))",
        ),
    ),
    "inputs that are never negative": (
        NET,
        Mistake("expression.py", "...], nonnegative: bool = False) ->", "...], nonnegative: bool = True) ->"),
    ),
    # properties
    "at least is at most": (
        TEXT,
        Mistake(
            WORDS,
            'return [[Atom(_sum(right, left, -1), head == ">")]]',
            'return [[Atom(_sum(left, right, -1), head == ">")]]',
        ),
    ),
    "equal is at most": (
        TEXT,
        Mistake(
            WORDS,
            "[[Atom(_sum(left, right, -1), False), Atom(_sum(right, left, -1), False)]]",
            "[[Atom(_sum(left, right, -1), True), Atom(_sum(right, left, -1), True)]]",
        ),
    ),
    "only the first alternative": (
        TEXT,
        Mistake(
            WORDS,
            "[part for argument in rest for part in _formula(names, argument)]",
            "[part for argument in rest[:1] for part in _formula(names, argument)]",
        ),
    ),
    "minus is plus": (TEXT, Mistake(WORDS, "_folded(parts, -1) if", "_folded(parts, 1) if")),
    "boxes that are points are empty": (
        TEXT,
        Mistake(WORDS, "width < 0 or (width == 0 and not", "width <= 0 or (width == 0 and not"),
    ),
    "ends are rounded inward": (TEXT, Mistake(WORDS, "math.nextafter(found, math.inf)", "found")),
    "ends that are not divided": (TEXT, Mistake(WORDS, "new = atom.bound / abs(a)", "new = atom.bound")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(tmp_path: Path, name: str) -> None:
    law, mistake = MISTAKES[name]
    with mistaken(tmp_path, mistake) as kit, np.errstate(all="ignore"):
        assert LAWS[law](kit) is not None, "nobody noticed"
