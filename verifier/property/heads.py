"""Properties of a network without the function that it ends with.

What a network ends with often keeps the order of its outputs, and properties often ask for no more than that.  Row by
row, with y = h(t):

    Softmax                  a (y_i - y_j) <= 0 says a (t_i - t_j) <= 0, if y_i and y_j are normalised together
    LogSoftmax               rows whose coefficients sum to 0 say the same of t, since y - t is one number for all
    Sigmoid, Tanh            as Softmax, for any two outputs; and y_i <= c says t_i <= h^-1(c)

All of it is exact but the last: the inverse is rounded to a float, in the direction in which the unsafe set grows.  A
threshold that no value of h reaches in real numbers is left alone, because floats do reach it.  A property keeps its
head unless all of its rows can be restated.

guarantees: the unsafe set of the restated property contains all that the head takes into the given one; the boxes are
            the same, so that whoever tries points judges them by the original network and property
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction

from verifier.network.network import Network
from verifier.property.numbers import at_least
from verifier.property.property import Clause, ExactRow, Property, RoundedRows

DIGITS = 60
CLOSE = Fraction(1, 10**50)
"""How far a logarithm of that many digits can be from the exact one, relative to 1 or to itself, whichever is more."""


@dataclass(frozen=True, eq=False)
class Restated:
    """A smaller network, and what is asked of it.

    If they are `equivalent`, it has the outputs of the given one, and a point is unsafe by the one property if and only
    if it is by the other.
    """

    network: Network
    property: Property
    equivalent: bool


def without_head(network: Network, prop: Property) -> Restated | None:
    """Network and property without the network's head; None if it has none, or if the property needs it."""
    head = network.head
    if head is None or prop.n_y != network.n_out:
        return None
    restate = _RESTATED[head.name]
    members = head.members.tolist()
    clauses, equivalent = [], True
    for clause in prop.clauses:
        rows = [restate(row, members) for row in clause.rows.exact]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            return None
        if all(new is old for new, old in zip(known, clause.rows.exact, strict=True)):
            clauses.append(clause)
            continue
        box = prop.boxes.lower[clause.box], prop.boxes.upper[clause.box]
        clauses.append(Clause(clause.box, RoundedRows.of(known, prop.n_x, prop.n_y, box)))
        equivalent = False
    return Restated(head.bare, replace(prop, clauses=tuple(clauses)), equivalent)


def _softmax(row: ExactRow, members: list[int]) -> ExactRow | None:
    return row if _compares(row) and len({members[j] for j, _ in row.y}) == 1 else None


def _compares(row: ExactRow) -> bool:
    """Whether it says which of two outputs is larger."""
    return not row.x and not row.bound and len(row.y) == 2 and row.y[0][1] == -row.y[1][1]


def _log_softmax(row: ExactRow, members: list[int]) -> ExactRow | None:
    totals: dict[int, Fraction] = defaultdict(Fraction)
    for j, a in row.y:
        totals[members[j]] += a
    return row if not any(totals.values()) else None


def _increasing(inverse: Callable[[Fraction], tuple[Fraction, Fraction] | None]) -> Restate:
    """Rows of an increasing function of one number whose inverse is between two numbers; None where it has none."""

    def restate(row: ExactRow, members: list[int]) -> ExactRow | None:
        if _compares(row):
            return row
        if row.x or len(row.y) != 1 or not row.y[0][1]:
            return None
        ((j, a),) = row.y
        ends = inverse(row.bound / a)
        if ends is None:
            return None
        sign = 1 if a > 0 else -1
        bound = Fraction(at_least(ends[1] if a > 0 else -ends[0]))
        return ExactRow(((j, Fraction(sign)),), (), bound, row.strict)

    return restate


Restate = Callable[[ExactRow, list[int]], ExactRow | None]


def _logit(y: Fraction) -> tuple[Fraction, Fraction] | None:
    """log(y / (1 - y)), between two numbers that are equal if it is rational."""
    return _logarithm(y / (1 - y)) if 0 < y < 1 else None


def _artanh(y: Fraction) -> tuple[Fraction, Fraction] | None:
    """log((1 + y) / (1 - y)) / 2."""
    if not -1 < y < 1:
        return None
    low, high = _logarithm((1 + y) / (1 - y))
    return low / 2, high / 2


def _logarithm(ratio: Fraction) -> tuple[Fraction, Fraction]:
    """Between two numbers; `decimal` rounds quotients and logarithms correctly to as many digits as it is asked for."""
    if ratio == 1:
        return Fraction(0), Fraction(0)
    context = Context(prec=DIGITS)
    quotient = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    found = Fraction(context.ln(quotient))
    error = CLOSE * max(Fraction(1), abs(found))
    return found - error, found + error


_RESTATED: dict[str, Restate] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Sigmoid": _increasing(_logit),
    "Tanh": _increasing(_artanh),
}
"""By the operator at the end."""
