"""Listeners that keep everything, and the laws of what they hear."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from verifier.search.domains import Counts
from verifier.search.journal import (
    Bounded,
    Closed,
    Event,
    LeafSolved,
    Listener,
    Moved,
    Split,
    Stepped,
    Superseded,
    Undecided,
)

ENDS = ("split", "closed", "superseded", "undecided")


class Kept(Listener):
    """Keeps the events of one process as they are."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, event: Event) -> None:
        self.events.append(event)

    def keep(self, note: object) -> None:
        raise AssertionError("nothing was noted")

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(frozen=True)
class Node:
    parent: int
    signs: tuple[int, ...]
    places: tuple[tuple[Any, ...], ...]
    lower: float
    closed: bool
    tier: str


def tree(kept: Kept) -> dict[int, Node]:
    """All domains of searches over signs by their numbers; closed by something else than the program of a leaf."""
    nodes: dict[int, Node] = {}
    lower: dict[int, tuple[float, str]] = {}
    solved = {event.number for event in kept.of(LeafSolved)}
    closed = {number for event in kept.of(Closed) for number in event.number.tolist()} - solved
    for event in kept.of(Bounded):
        lower |= {k: (b, event.tier) for k, b in zip(event.number.tolist(), event.lower.tolist(), strict=True)}
    for event in kept.of(Split):
        columns = event.number.tolist(), event.parent.tolist(), event.domains.signs.tolist(), event.places()
        for number, parent, signs, places in zip(*columns, strict=True):
            assert number not in nodes
            nodes[number] = Node(
                parent, tuple(signs), tuple(places), lower[number][0], number in closed, lower[number][1]
            )
    return nodes


@dataclass
class Lives(Listener):
    """What became of every domain, in whatever process; each rule below is checked while it is heard."""

    parent: dict[int, int] = field(default_factory=dict)
    tier: dict[int, str] = field(default_factory=dict)
    end: dict[int, str] = field(default_factory=dict)  # one of `ENDS`
    by: Counter[str] = field(default_factory=Counter)
    places: dict[int, list[Any]] = field(default_factory=dict)
    covered: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    counts: Counts = field(default_factory=Counts)

    def note(self, event: Event) -> tuple[Any, ...] | None:
        match event:
            case Split(number=number, parent=parent, places=places):
                return "split", number.tolist(), parent.tolist(), places()
            case Bounded(number=number, tier=tier):
                return "bounded", number.tolist(), tier
            case Closed(number=number, by=by, evidence=evidence):
                assert evidence() is not None
                return "closed", number.tolist(), by.value
            case Superseded(number=number, by=by):
                return "superseded", number.tolist(), by.tolist()
            case Undecided(number=number, reason=reason):
                return "undecided", number, reason.value
            case LeafSolved(number=number, tier=tier):
                return "solved", number, tier
            case Stepped(iterations=iterations):
                return "stepped", iterations
            case Moved(number=number):
                return "moved", number.tolist()
        return None

    def keep(self, note: object) -> None:
        assert isinstance(note, tuple)
        name, *rest = note
        getattr(self, f"_{name}")(*rest)

    def _split(self, numbers: list[int], parents: list[int], places: list[Any]) -> None:
        for parent in set(parents) - {-1}:
            self._ends(parent, "split")
        for number, parent, place in zip(numbers, parents, places, strict=True):
            assert number not in self.parent, "born once"
            self.parent[number] = parent
            self.places[number] = place

    def _bounded(self, numbers: list[int], tier: str) -> None:
        self.counts = self.counts + Counts({tier: len(numbers)})
        for number in numbers:
            assert number not in self.tier, "bounded once"
            assert number in self.parent, "born before"
            self.tier[number] = tier

    def _closed(self, numbers: list[int], by: str) -> None:
        self.by[by] += len(numbers)
        for number in numbers:
            self._ends(number, "closed")

    def _superseded(self, numbers: list[int], by: list[int]) -> None:
        for number, other in zip(numbers, by, strict=True):
            assert other == -1 or other in self.parent
            self._ends(number, "superseded")
            self.covered[number] = other

    def _undecided(self, number: int, reason: str) -> None:
        self._ends(number, "undecided")

    def _solved(self, number: int, tier: str) -> None:
        assert number not in self.end, "solved before it ends"
        assert self.tier[number] == tier
        self.counts = self.counts + Counts({tier: -1}, leaves=1)

    def _stepped(self, iterations: int) -> None:
        self.counts = self.counts + Counts(batches=1, iterations=iterations)

    def _moved(self, numbers: list[int]) -> None:
        assert not set(numbers) & set(self.end)
        self.moved.update(numbers)

    def _ends(self, number: int, how: str) -> None:
        assert number in self.parent, "born before it ends"
        assert number not in self.end, f"domain {number}: {self.end.get(number)} before, {how} now"
        self.end[number] = how

    @property
    def open(self) -> set[int]:
        return set(self.parent) - set(self.end)

    @property
    def roots(self) -> set[int]:
        return {number for number, parent in self.parent.items() if parent == -1}

    def below(self, root: int) -> set[int]:
        """A domain and all that it was split into."""
        children: dict[int, list[int]] = {}
        for number, parent in self.parent.items():
            children.setdefault(parent, []).append(number)
        found, waiting = set[int](), [root]
        while waiting:
            number = waiting.pop()
            found.add(number)
            waiting += children.get(number, [])
        return found
