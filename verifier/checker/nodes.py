"""The rules of proofs, one class each: what a node reads, what it requires, and what it leaves to prove.

`below` says which clauses are open in each child, `scopes` what is known there.  Nodes that evaluate the inequality are
judged together with others that are `alike`; every one of them is judged in its own scope.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import zonotope
from .implied import blocked
from .inequality import Target
from .network import Network
from .proving import Claim, Setting, confirm_all, confirm_interval, least, proved
from .rationals import Array, Ints
from .scope import LARGEST, Scope, interval
from .stream import Rejected, Stream
from .witness import SLOPE_KINDS, Witness, read_witness

Open = frozenset[int]
"""Numbers of clauses."""

_ALL_NEURONS = 1 << len(SLOPE_KINDS)
_NUMBERS = 1 << 22
"""So many of a zonotope are held at a time."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The scopes of the children, or why the node is rejected; and the bound of a clause that was closed."""

    scopes: Sequence[Scope] = ()
    fault: Rejected | None = None
    bound: float = np.inf


class Node:
    """What all rules have.  The scopes of a rule are those of its children, in the order of `below`."""

    alike: Hashable = None
    """Nodes for which it is the same are judged together; None: there is nothing to be gained."""

    def below(self, opened: Open) -> list[Open]:
        """The clauses that are open in each child."""
        return [opened]

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        """Raises Rejected."""
        raise NotImplementedError

    def judged(self, setting: Setting, nodes: Sequence[Any], scopes: Sequence[Scope]) -> list[Judged]:
        """Of several nodes that are alike."""
        found = []
        for node, scope in zip(nodes, scopes, strict=True):
            try:
                found.append(Judged(node.scopes(setting, scope)))
            except Rejected as fault:
                found.append(Judged(fault=fault))
        return found


# -- parts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Split(Node):
    """A neuron passes, or it blocks."""

    group: int
    neuron: int

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Split:
        return cls(*_neuron(stream, setting.net))

    def below(self, opened: Open) -> list[Open]:
        return [opened, opened]

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        some = np.arange(setting.net.size(self.group)) == self.neuron
        return [scope.passing(self.group, some), scope.blocking(self.group, some)]


@dataclass(frozen=True, eq=False)
class Divide(Node):
    """What a neuron is applied to is at least a number, or at most that."""

    group: int
    neuron: int
    value: float

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Divide:
        found = cls(*_neuron(stream, setting.net), stream.double())
        if not abs(found.value) < np.inf:
            raise Rejected("a neuron is divided at no number")
        return found

    def below(self, opened: Open) -> list[Open]:
        return [opened, opened]

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        some = np.arange(setting.net.size(self.group)) == self.neuron
        return [scope.passing(self.group, some, self.value), scope.blocking(self.group, some, self.value)]


@dataclass(frozen=True, eq=False)
class Cut(Node):
    """An input is at most a number, or at least that."""

    axis: int
    value: float

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Cut:
        return cls(stream.below(setting.net.n_in, "input"), stream.double())

    def below(self, opened: Open) -> list[Open]:
        return [opened, opened]

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        j, value = self.axis, self.value
        if not scope.low[0, j] <= value <= scope.high[0, j]:
            raise Rejected(f"the cut of input {j} lies outside of its interval")
        low, high = scope.low.copy(), scope.high.copy()
        low[0, j] = high[0, j] = value
        return [replace(scope, high=high), replace(scope, low=low)]


@dataclass(frozen=True, eq=False)
class Part(Node):
    """Some of the open clauses, and the others."""

    first: Open

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Part:
        first = opened & set(stream.set(len(setting.clauses)).tolist())
        if not first or first == opened:
            raise Rejected("one of two parts has no clause")
        return cls(first)

    def below(self, opened: Open) -> list[Open]:
        return [self.first, opened - self.first]

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        return [scope, scope]


# -- what is known -----------------------------------------------------------------------------------------------------


class Keep(Node):
    """What is known is kept."""

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Keep:
        return cls()

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        return [replace(scope, before=replace(scope, before=None))]


class Recall(Node):
    """Only what was kept is known, and the signs since then."""

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Recall:
        return cls()

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        if scope.before is None:
            raise Rejected("no earlier bounds were kept")
        return [scope.before]


@dataclass(frozen=True, eq=False)
class Imply(Node):
    """A row of the only open clause forces neurons to block."""

    clause: int
    row: int

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Imply:
        if len(opened) != 1:
            raise Rejected("signs are implied by the only clause that is open, and there are others")
        (number,) = opened
        return cls(number, stream.below(len(setting.clauses[number].rows), "row of the clause"))

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        for k, some in blocked(setting.net, setting.clauses[self.clause], self.row).items():
            scope = scope.blocking(k, some)
        return [scope]


@dataclass(frozen=True, eq=False)
class Default(Node):
    """Bounds of a group and all later ones: intervals, and sweeps with some kinds of slopes."""

    first: int
    kinds: int

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Default:
        first = _group(stream, setting.net) if setting.net.groups else stream.varint()  # a network may be affine
        return cls(first, stream.below(2 * _ALL_NEURONS, "kinds of slopes"))

    @property
    def alike(self) -> Hashable:  # type: ignore[override]
        return Default, self.first, self.kinds

    def judged(self, setting: Setting, nodes: Sequence[Any], scopes: Sequence[Scope]) -> list[Judged]:
        net, found = setting.net, []  # type: Network, list[Judged]
        unknowns = net.n_in + sum(net.size(k) for k in range(1, net.groups + 1))
        some = max(1, _NUMBERS // (unknowns * net.room))
        for start in range(0, len(scopes), some):
            part = scopes[start : start + some]
            known = self._bounded(setting, Scope.stacked(part))
            found += [Judged([scope.known_at(known, d)]) for d, scope in enumerate(part)]
        return found

    def _bounded(self, setting: Setting, scope: Scope) -> Scope:
        """Intersected with those of the groups before, from the first group to the last."""
        net, forward = setting.net, Forward(setting.net)
        for k in range(1, net.groups + 1):
            if k >= self.first:
                scope = scope.sized(net, k)
                low, high = interval(net, scope, k)
                if setting.exact:
                    confirm_interval(net, scope, k, low, high)
                scope = scope.bounded(k, low, high)
                for bit, slope in enumerate(SLOPE_KINDS):
                    if self.kinds >> bit & 1:
                        scope = self._swept(setting, scope, k, slope, forward)
        return scope.sized(net, net.groups + 1)

    def _swept(self, setting: Setting, scope: Scope, k: int, slope: str, forward: Forward) -> Scope:
        """With the bounds that one sweep back gives each neuron, or going forward once, which gives the same."""
        low, high = scope.lower[k - 1], scope.upper[k - 1]
        bent = (low < 0) & (high > 0) if setting.net.layers[k - 1].function.bends_at_zero else low < high
        chosen = bent if self.kinds < _ALL_NEURONS else np.ones_like(low, np.bool_)
        rows = [(d, neurons, neurons) for d, neurons in enumerate(map(np.flatnonzero, chosen))]
        claims = (claim for d, *both in rows for claim in _claims(setting, k, d, both, Witness({}, slope)))
        if slope != "chord" or not setting.net.piecewise_linear:
            return _bounded(scope, k, rows, least(setting, scope, claims))
        below, above = forward.bounds(scope, k)
        found = np.concatenate([side[d, some] for d, some, _ in rows for side in (below, -above)])
        if setting.exact:
            confirm_all(setting, scope, claims, found)
        return _bounded(scope, k, rows, found)


@dataclass(eq=False)
class Forward:
    """The forms of all groups up to one, made from the bounds that these have."""

    net: Network
    forms: dict[int, zonotope.Form] = field(default_factory=dict)

    def bounds(self, scope: Scope, k: int) -> tuple[Array, Array]:
        """Of layer k; the bounds of the groups before it must not change any more."""
        if not self.forms:
            self.forms[0] = zonotope.of_input(scope)
        for j in range(len(self.forms), k):
            values = zonotope.of_layer(self.net, self.net.layers[j - 1], self.forms)
            self.forms[j] = zonotope.of_group(values, scope.lower[j - 1], scope.upper[j - 1])
        return zonotope.bounds(zonotope.of_layer(self.net, self.net.layers[k - 1], self.forms))


@dataclass(frozen=True, eq=False)
class Improve(Node):
    """Bounds of single neurons: the inequality for e_i and -e_i on the network cut off there."""

    group: int
    lower: Ints
    upper: Ints
    witness: Witness

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Improve:
        k = _group(stream, setting.net)
        lower, upper = stream.set(setting.net.size(k)), stream.set(setting.net.size(k))
        return cls(k, lower, upper, read_witness(stream, setting.net, k, len(lower) + len(upper)))

    @property
    def alike(self) -> Hashable:  # type: ignore[override]
        return Improve, self.group, id(self) if self.witness.single else 0

    def judged(self, setting: Setting, nodes: Sequence[Any], scopes: Sequence[Scope]) -> list[Judged]:
        k, scope = self.group, Scope.stacked(scopes)
        rows = [(d, node.lower, node.upper) for d, node in enumerate(nodes)]
        claims = (c for d, lower, upper in rows for c in _claims(setting, k, d, (lower, upper), nodes[d].witness))
        known = _bounded(scope, k, rows, least(setting, scope, claims))
        return [Judged([one.known_at(known, d)]) for d, one in enumerate(scopes)]


def _claims(setting: Setting, k: int, scope: int, rows: Sequence[Ints], witness: Witness) -> Iterator[Claim]:
    """Lower bounds of some neurons of group k and upper ones of others, so many at a time that memory suffices."""
    lower, upper = rows
    index, sign = np.concatenate(rows), np.repeat([1.0, -1.0], [len(lower), len(upper)])
    for start in range(0, len(index), setting.rows):
        some = slice(start, start + setting.rows)
        q = np.zeros((len(index[some]), setting.net.size(k)))
        q[np.arange(len(q)), index[some]] = sign[some]
        none, zero = np.zeros((len(q), setting.net.n_in)), np.zeros(len(q))
        yield Claim(scope, Target(k, q, np.abs(q), none, none, zero, zero, summands=1), witness.part(some))


def _bounded(scope: Scope, k: int, rows: Sequence[tuple[int, Ints, Ints]], found: Array) -> Scope:
    """With bounds of group k: of each scope d the lower ones of some neurons, then minus the upper ones of others."""
    low, high = np.full_like(scope.lower[k - 1], -np.inf), np.full_like(scope.upper[k - 1], np.inf)
    end = 0
    for d, lower, upper in rows:
        start, middle, end = end, end + len(lower), end + len(lower) + len(upper)
        low[d, lower], high[d, upper] = found[start:middle], -found[middle:end]
    return scope.bounded(k, low, high)


# -- what is excluded --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Row:
    """An open clause, weights of its rows, and a witness that bounds their sum."""

    clause: int
    weights: Array
    witness: Witness

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Row:
        number = _clause(stream, opened)
        weights = _weights(stream, len(setting.clauses[number].rows))
        return cls(number, weights, read_witness(stream, setting.net, setting.output, 1))

    @classmethod
    def several(cls, stream: Stream, setting: Setting, opened: Open) -> list[Row]:
        """With weights of their own each, and one witness for all of them."""
        number = _clause(stream, opened)
        rows = len(setting.clauses[number].rows)
        weights = [_weights(stream, rows) for _ in range(stream.below(rows + 2, "count of planes"))]
        witness = read_witness(stream, setting.net, setting.output, 1)
        return [cls(number, own, witness) for own in weights]

    def claim(self, setting: Setting, scope: int) -> Claim:
        clause = setting.clauses[self.clause]
        sharp = clause.exact_target(setting.output, self.weights) if setting.exact else None
        return Claim(scope, clause.target(setting.output, self.weights), self.witness, sharp)


@dataclass(frozen=True, eq=False)
class Close(Node):
    """A clause has no point in the scope; others may be left."""

    row: Row
    left: Open

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Close:
        row = Row.read(stream, setting, opened)
        return cls(row, opened - {row.clause})

    @property
    def alike(self) -> Hashable:  # type: ignore[override]
        return Close, id(self) if self.row.witness.single else 0

    def below(self, opened: Open) -> list[Open]:
        return [self.left] if self.left else []

    def judged(self, setting: Setting, nodes: Sequence[Any], scopes: Sequence[Scope]) -> list[Judged]:
        claims = (node.row.claim(setting, d) for d, node in enumerate(nodes))
        bounds = least(setting, Scope.stacked(scopes), claims).tolist()
        return [node._judged(bound, scope) for node, bound, scope in zip(nodes, bounds, scopes, strict=True)]

    def _judged(self, bound: float, scope: Scope) -> Judged:
        if scope.vacant:
            bound = np.inf
        if not bound > 0:
            return Judged(fault=Rejected(f"clause {self.row.clause} is not closed: its bound is {bound:.6g}"))
        return Judged([scope] if self.left else [], bound=bound)


@dataclass(frozen=True, eq=False)
class Shrink(Node):
    """Ends of the box move; what each of them cuts off is above some plane of every open clause."""

    rows: Sequence[Row]
    axes: Ints
    sides: Ints
    values: Array

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Shrink:
        count = stream.below(len(setting.clauses) + 1, "count of clauses")
        rows = [row for _ in range(count) for row in Row.several(stream, setting, opened)]
        if {row.clause for row in rows} != opened:
            raise Rejected("the planes are not those of the open clauses")
        ends = []
        for _ in range(stream.varint()):
            ends.append((stream.below(2 * setting.net.n_in, "end of an input"), stream.double()))
        codes, values = np.array([code for code, _ in ends], np.int64), np.array([value for _, value in ends])
        return cls(rows, codes // 2, codes % 2, values)

    @property
    def alike(self) -> Hashable:  # type: ignore[override]
        return Shrink, id(self) if any(row.witness.single for row in self.rows) else 0

    def judged(self, setting: Setting, nodes: Sequence[Any], scopes: Sequence[Scope]) -> list[Judged]:
        claims = (row.claim(setting, d) for d, node in enumerate(nodes) for row in node.rows)
        found = proved(setting, Scope.stacked(scopes), claims)
        planes = (part.rows(slice(i, i + 1)) for _, part in found for i in range(len(part.plane.error)))
        given = [[next(planes) for _ in node.rows] for node in nodes]
        return [node._judged(own, scope) for node, own, scope in zip(nodes, given, scopes, strict=True)]

    def _judged(self, planes: Sequence[Any], scope: Scope) -> Judged:
        """One end after the other: what each cuts off [e, n0], and the box that is left."""
        low, high = scope.low[0].copy(), scope.high[0].copy()
        gone_low, gone_high = np.empty((len(self.axes), len(low))), np.empty((len(self.axes), len(low)))
        for e, (j, side, value) in enumerate(zip(self.axes, self.sides, self.values, strict=True)):
            if not low[j] <= value <= high[j]:
                return Judged(fault=Rejected(f"the new end of input {j} lies outside of its interval"))
            gone_low[e], gone_high[e] = low, high
            (gone_low if side else gone_high)[e, j] = value
            (high if side else low)[j] = value
        above: dict[int, Any] = {row.clause: False for row in self.rows}
        for row, found in zip(self.rows, planes, strict=True):
            above[row.clause] |= found.least(gone_low, gone_high) > 0
        for safe in above.values():
            bad = np.flatnonzero(~safe)
            if len(bad):
                return Judged(fault=Rejected(f"what is cut off at input {self.axes[bad[0]]} may be unsafe"))
        return Judged([replace(scope, low=low[None], high=high[None])])


@dataclass(frozen=True, eq=False)
class Empty(Node):
    """The bounds of a neuron exclude each other."""

    group: int
    neuron: int

    @classmethod
    def read(cls, stream: Stream, setting: Setting, opened: Open) -> Empty:
        return cls(*_neuron(stream, setting.net))

    def below(self, opened: Open) -> list[Open]:
        return []

    def scopes(self, setting: Setting, scope: Scope) -> list[Scope]:
        k, i = self.group, self.neuron
        if not scope.lower[k - 1][0, i] > scope.upper[k - 1][0, i]:
            raise Rejected(f"the bounds of neuron {i} of group {k} do not exclude each other")
        return []


def _clause(stream: Stream, opened: Open) -> int:
    number = stream.varint()
    if number not in opened:
        raise Rejected(f"clause {number} is not open")
    return number


def _weights(stream: Stream, rows: int) -> Array:
    """Of the rows of a clause."""
    weights = np.zeros(rows)
    if rows == 1:
        weights[:] = 1.0
    else:
        members = stream.set(rows)
        weights[members] = [stream.double() for _ in members]
    if not ((weights >= 0).all() and (weights <= LARGEST).all() and (weights > 0).any()):
        raise Rejected("a lambda is negative or too large, or none is above zero")
    return weights


def _group(stream: Stream, net: Network) -> int:
    k = stream.varint()
    if not 1 <= k <= net.groups:
        raise Rejected(f"there is no group {k}, only 1 to {net.groups}")
    return k


def _neuron(stream: Stream, net: Network) -> tuple[int, int]:
    k = _group(stream, net)
    return k, stream.below(net.size(k), f"neuron of group {k}")


NODES: dict[int, Any] = {
    1: Split,
    2: Cut,
    3: Default,
    4: Improve,
    5: Shrink,
    6: Empty,
    7: Close,
    8: Part,
    9: Keep,
    10: Recall,
    11: Imply,
    12: Divide,
}


def read_node(stream: Stream, setting: Setting, opened: Open) -> Node:
    """The next node, where these clauses are open."""
    kind = stream.varint()
    if kind not in NODES:
        raise Rejected(f"there is no node of kind {kind}")
    found: Node = NODES[kind].read(stream, setting, opened)
    return found
