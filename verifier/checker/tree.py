"""The rules of proofs, and the walk over one: every node is read once and judged at once.

Scopes that wait for their nodes are a stack, so neither the depth of a proof nor its length needs memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from .exact import exact_plane, exact_target, recorded, require_confirmed, require_confirmed_interval
from .implied import blocked
from .inequality import Choice, Plane, Target, plane
from .maps import Array, Ints, rational
from .network import Network
from .scope import LARGEST, Scope, hull, interval
from .stream import Rejected, Stream
from .vnnlib import Clause
from .witness import SLOPE_KINDS, Witness, read_witness

_ROWS = 256
"""So many rows are bounded together; more need more memory."""

_ALL_NEURONS = 1 << len(SLOPE_KINDS)


@dataclass(eq=False)
class Walk:
    """One walk over one proof.  `nodes` counts, `margin` is the least bound that closed a clause."""

    net: Network
    clauses: list[Clause]
    stream: Stream
    exact: bool = False
    nodes: int = 0
    closed: int = 0
    margin: float = np.inf
    waiting: list[Scope] = field(default_factory=list)

    def run(self, tell: Callable[[Walk], None] = lambda walk: None) -> None:
        """Raises Rejected unless the proof holds."""
        named = np.zeros(len(self.clauses), np.bool_)
        with np.errstate(all="ignore"):
            while not self.stream.at_end():
                members = self.stream.set(len(self.clauses))
                if not len(members):
                    raise Rejected("a tree is about no clause")
                named[members] = True
                low, high = hull([(self.clauses[c].low, self.clauses[c].high) for c in members])
                self.waiting.append(Scope.start(self.net, low, high, frozenset(members.tolist())))
                while self.waiting:
                    self.nodes += 1
                    self._node(self.waiting.pop())
                    tell(self)
        if not named.all():
            raise Rejected(f"clause {int(np.flatnonzero(~named)[0])} has no tree")

    def _node(self, scope: Scope) -> None:
        """Judges the next node and puts its children on the stack, the first of them on top."""
        kind = self.stream.varint()
        if kind not in _NODES:
            raise Rejected(f"there is no node of kind {kind}")
        self.waiting.extend(reversed(_NODES[kind](self, scope)))

    # -- rules: what they read, require, and leave to prove ------------------------------------------------------------

    def split(self, scope: Scope) -> list[Scope]:
        k, i = self._neuron()
        return [scope.at_least_zero(k, i), scope.at_most_zero(k, i)]

    def cut(self, scope: Scope) -> list[Scope]:
        j, value = self.stream.below(self.net.n_in, "input"), self.stream.double()
        if not scope.low[j] <= value <= scope.high[j]:
            raise Rejected(f"the cut of input {j} lies outside of its interval")
        low, high = scope.low.copy(), scope.high.copy()
        low[j] = high[j] = value
        return [replace(scope, high=high), replace(scope, low=low)]

    def default(self, scope: Scope) -> list[Scope]:
        first = self._group() if self.net.groups else self.stream.varint()  # a network may be affine
        kinds = self.stream.below(2 * _ALL_NEURONS, "kinds of slopes")
        for k in range(first, self.net.groups + 1):
            scope = self._with_interval(scope.sized(self.net, k), k)
            for bit, slope in enumerate(SLOPE_KINDS):
                if kinds >> bit & 1:
                    low, high = scope.lower[k - 1], scope.upper[k - 1]
                    chosen = np.flatnonzero((low < 0) & (high > 0)) if kinds < _ALL_NEURONS else np.arange(len(low))
                    scope = self._improved(scope, k, chosen, chosen, Witness({}, slope))
        return [scope.sized(self.net, self.net.groups + 1)]

    def _with_interval(self, scope: Scope, k: int) -> Scope:
        low, high = interval(self.net, scope, k)
        if self.exact:
            require_confirmed_interval(self.net, scope, k, low, high)
        return scope.bounded(k, low, high)

    def improve(self, scope: Scope) -> list[Scope]:
        k = self._group()
        lower, upper = self.stream.set(self.net.size(k)), self.stream.set(self.net.size(k))
        witness = read_witness(self.stream, self.net, k, len(lower) + len(upper))
        return [self._improved(scope, k, lower, upper, witness)]

    def _improved(self, scope: Scope, k: int, lower: Ints, upper: Ints, witness: Witness) -> Scope:
        """With bounds of the neurons named, by the inequality for e_i and -e_i on the network cut off there."""
        n = self.net.size(k)
        index = np.concatenate([lower, upper])
        sign = np.concatenate([np.ones(len(lower)), -np.ones(len(upper))])
        found = np.full(len(index), -np.inf)
        for start in range(0, len(index), _ROWS):
            some = slice(start, start + _ROWS)
            q = np.zeros((len(index[some]), n))
            q[np.arange(len(q)), index[some]] = sign[some]
            claim = Claim(_plain(self.net, k, q), witness.part(some))
            found[some] = self._proved(scope, claim).minimum(scope.low, scope.high)
        low, high = np.full(n, -np.inf), np.full(n, np.inf)
        low[lower], high[upper] = found[: len(lower)], -found[len(lower) :]
        return scope.bounded(k, low, high)

    def shrink(self, scope: Scope) -> list[Scope]:
        planes, known = [], set()
        for _ in range(self.stream.below(len(self.clauses) + 1, "count of planes")):
            clause, claim = self._claim(scope)
            planes.append(self._proved(scope, claim))
            known.add(clause)
        if known != scope.open:
            raise Rejected("the planes are not those of the open clauses")
        low, high = scope.low.copy(), scope.high.copy()
        for _ in range(self.stream.varint()):
            j, side = divmod(self.stream.below(2 * self.net.n_in, "end of an input"), 2)
            value = self.stream.double()
            if not low[j] <= value <= high[j]:
                raise Rejected(f"the new end of input {j} lies outside of its interval")
            gone_low, gone_high = low.copy(), high.copy()
            (gone_low if side else gone_high)[j] = value
            for found in planes:
                if not (found.minimum(gone_low, gone_high) > 0).all():
                    raise Rejected(f"what is cut off at input {j} may be unsafe")
            (high if side else low)[j] = value
        return [replace(scope, low=low, high=high)]

    def empty(self, scope: Scope) -> list[Scope]:
        k, i = self._neuron()
        if not scope.lower[k - 1][i] > scope.upper[k - 1][i]:
            raise Rejected(f"the bounds of neuron {i} of group {k} do not exclude each other")
        return []

    def close(self, scope: Scope) -> list[Scope]:
        clause, claim = self._claim(scope)
        (bound,) = self._proved(scope, claim).minimum(scope.low, scope.high)
        if not bound > 0:
            raise Rejected(f"clause {clause} is not closed: its bound is {bound:.6g}")
        self.closed += 1
        self.margin = min(self.margin, float(bound))
        left = scope.open - {clause}
        return [replace(scope, open=left)] if left else []

    def part(self, scope: Scope) -> list[Scope]:
        first = scope.open & set(self.stream.set(len(self.clauses)).tolist())
        if not first or first == scope.open:
            raise Rejected("one of two parts has no clause")
        return [replace(scope, open=first), replace(scope, open=scope.open - first)]

    def keep(self, scope: Scope) -> list[Scope]:
        return [replace(scope, before=replace(scope, before=None))]

    def recall(self, scope: Scope) -> list[Scope]:
        if scope.before is None:
            raise Rejected("no earlier bounds were kept")
        return [replace(scope.before, open=scope.open)]

    def imply(self, scope: Scope) -> list[Scope]:
        if len(scope.open) != 1:
            raise Rejected("signs are implied by the only clause that is open, and there are others")
        (number,) = scope.open
        clause = self.clauses[number]
        for k, some in blocked(self.net, clause, self.stream.below(len(clause.rows), "row of the clause")).items():
            scope = scope.blocking(k, some)
        return [scope]

    # -- what they share -----------------------------------------------------------------------------------------------

    def _group(self) -> int:
        k = self.stream.varint()
        if not 1 <= k <= self.net.groups:
            raise Rejected(f"there is no group {k}, only 1 to {self.net.groups}")
        return k

    def _neuron(self) -> tuple[int, int]:
        k = self._group()
        return k, self.stream.below(self.net.size(k), f"neuron of group {k}")

    def _claim(self, scope: Scope) -> tuple[int, Claim]:
        """An open clause, the weights of its rows, and a witness."""
        number = self.stream.varint()
        if number not in scope.open:
            raise Rejected(f"clause {number} is not open")
        clause, layer = self.clauses[number], self.net.groups + 1
        weights = np.zeros(len(clause.rows))
        if len(weights) == 1:
            weights[:] = 1.0
        else:
            members = self.stream.set(len(weights))
            weights[members] = [self.stream.double() for _ in members]
        if not ((weights >= 0).all() and (weights <= LARGEST).all() and (weights > 0).any()):
            raise Rejected("a lambda is negative or too large, or none is above zero")
        sharp = clause.target(layer, rational(weights)) if self.exact else None
        witness = read_witness(self.stream, self.net, layer, 1)
        return number, Claim(clause.target(layer, weights), witness, sharp)

    def _proved(self, scope: Scope, claim: Claim) -> Proved:
        record: dict[int, Choice] = {}
        choose = recorded(claim.witness.chooser(self.net, scope), record)
        found = plane(self.net, scope, claim.target, choose)
        if not self.exact:
            return Proved(found)
        return Proved(found, exact_plane(self.net, scope, claim.sharp or exact_target(claim.target), record))


@dataclass(frozen=True, eq=False)
class Claim:
    """Functions to be bounded, and multipliers; `sharp` is the target without rounding, if it was rounded."""

    target: Target
    witness: Witness
    sharp: Target | None = None


@dataclass(frozen=True, eq=False)
class Proved:
    """Planes below the functions of a claim, and the same in rationals if these are asked to confirm every bound."""

    plane: Plane
    sharp: Plane | None = None

    def minimum(self, low: Array, high: Array) -> Array:
        found = self.plane.minimum(low, high)
        if self.sharp is not None:
            require_confirmed(self.sharp, low, high, found)
        return found


def _plain(net: Network, k: int, q: Array) -> Target:
    """q.t of group k, nothing else."""
    none, zero = np.zeros((len(q), net.n_in)), np.zeros(len(q))
    return Target(k, q, np.abs(q), none, none, zero, zero, summands=1)


_NODES: dict[int, Callable[[Walk, Scope], list[Scope]]] = {
    1: Walk.split,
    2: Walk.cut,
    3: Walk.default,
    4: Walk.improve,
    5: Walk.shrink,
    6: Walk.empty,
    7: Walk.close,
    8: Walk.part,
    9: Walk.keep,
    10: Walk.recall,
    11: Walk.imply,
}
