"""The walk over a proof: nodes are read some way ahead, so that many of them can be judged together.

What a node says does not depend on bounds, so it can be read before those above it are judged.  Each is judged in the
scope that the node above it has left, and nothing is accepted before all are.  What waits is bounded: the nodes that
were read ahead, and one scope for each open end of the tree; neither the depth of a proof nor its length needs more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .nodes import Close, Judged, Node, Open, read_node
from .proving import Setting
from .scope import Scope, hull
from .stream import Rejected, Stream

_NUMBERS, _BYTES = 1 << 22, 1 << 22
"""How many bounds of neurons, and how many bytes of the file, may be held ahead."""

_MOST = 4096
"""Nodes that are read ahead."""


@dataclass(eq=False)
class Place:
    """A place in the tree: the clauses that are open there, its scope as soon as that is known, its node once read."""

    open: Open
    scope: Scope | None = None
    node: Node | None = None
    number: int = 0
    below: list[Place] = field(default_factory=list)


@dataclass(eq=False)
class Walk:
    """One walk over one proof.  `nodes` counts, `margin` is the least bound that closed a clause.

    A fault is raised only when everything before it has been judged: the first node of the file that is wrong is named.
    """

    setting: Setting
    stream: Stream
    nodes: int = 0
    closed: int = 0
    margin: float = np.inf
    waiting: list[Place] = field(default_factory=list)
    fault: tuple[int, Rejected] | None = None

    def run(self, tell: Callable[[Walk], None] = lambda walk: None) -> None:
        """Raises Rejected unless the proof holds."""
        named = np.zeros(len(self.setting.clauses), np.bool_)
        with np.errstate(all="ignore"):
            while places := self._read_ahead(named):
                self._judge(places, tell)
                if self.fault is not None:
                    self.nodes, fault = self.fault
                    raise fault
        if not named.all():
            raise Rejected(f"clause {int(np.flatnonzero(~named)[0])} has no tree")

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read_ahead(self, named: np.ndarray) -> list[Place]:
        """The next places whose nodes were read; fewer if one cannot be read, which is a fault."""
        neurons = sum(layer.size for layer in self.setting.net.layers)
        most, start, found = min(_MOST, max(16, _NUMBERS // neurons)), self.stream.read, []  # type: int, int, list[Place]
        try:
            while len(found) < most and self.stream.read < start + _BYTES:
                if not self.waiting and self.stream.at_end():
                    break
                self.nodes += 1
                if not self.waiting:
                    self.waiting.append(self._tree(named))
                found.append(self._next())
        except Rejected as fault:
            self.fault = self.nodes, fault
            if not found:
                raise
        return found

    def _tree(self, named: np.ndarray) -> Place:
        """The place where the next tree begins."""
        clauses = self.setting.clauses
        members = self.stream.set(len(clauses))
        if not len(members):
            raise Rejected("a tree is about no clause")
        named[members] = True
        low, high = hull([(clauses[c].low, clauses[c].high) for c in members])
        return Place(frozenset(members.tolist()), Scope.start(self.setting.net, low, high))

    def _next(self) -> Place:
        """The next place, with its node; its children wait, the first of them on top."""
        place = self.waiting.pop()
        place.number = self.nodes
        place.node = read_node(self.stream, self.setting, place.open)
        place.below = [Place(opened) for opened in place.node.below(place.open)]
        self.waiting.extend(reversed(place.below))
        return place

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(self, places: list[Place], tell: Callable[[Walk], None]) -> None:
        """All of them; those that are alike together, as soon as their scopes are known, the most first."""
        ready: dict[Hashable, list[Place]] = {}
        for place in places:
            self._add(ready, place)
        while ready:
            key = None if None in ready else max(ready, key=lambda key: len(ready[key]))
            for place in self._judged(ready.pop(key)):
                self._add(ready, place)
            tell(self)
        if self.fault is None and any(place.node is not None for place in places):
            raise Rejected("a node was not judged")  # it cannot be; but then nothing would be proved

    def _add(self, ready: dict[Hashable, list[Place]], place: Place) -> None:
        if place.scope is not None and place.node is not None:
            alike = place.node.alike
            key = alike if alike is None or not self.setting.exact else (alike, place.number)
            ready.setdefault(key, []).append(place)

    def _judged(self, places: list[Place]) -> list[Place]:
        """Judges places that are alike, and gives the places below them their scopes."""
        before = [place for place in places if self.fault is None or place.number < self.fault[0]]
        if not before:
            return []
        nodes: list[Any] = [place.node for place in before]
        scopes: list[Any] = [place.scope for place in before]
        try:
            judged = nodes[0].judged(self.setting, nodes, scopes)
        except Rejected as fault:
            judged = [Judged(fault=fault)] * len(nodes)
        below: list[Place] = []
        for place, found in zip(before, judged, strict=True):
            if found.fault is not None:
                if self.fault is None or place.number < self.fault[0]:
                    self.fault = place.number, found.fault
                continue
            if isinstance(place.node, Close):
                self.closed += 1
                self.margin = min(self.margin, found.bound)
            for child, scope in zip(place.below, found.scopes, strict=True):
                child.scope = scope
            below += place.below
            place.scope, place.node, place.below = None, None, []
        return below
