"""What is known of every domain of a run, and the proof that it makes: a tree of nodes in prefix order.

Notes come in the order in which things happened, from all processes and searches of a run, losers of a race included.
At the end those domains are taken that together cover every clause.  What was superseded is in none of them.  The notes
themselves wait in a file, so that memory holds only who is whose child, and another run can go on with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from verifier.errors import InputError, VerifierError
from verifier.proofs.log import Anew, Born, Covered, Dropped, Note, NoteLog, Place, Rooted, Said, Sharper, Written
from verifier.proofs.stream import Node, Piece, Pieces, chosen


class Incomplete(VerifierError):
    """Some part of the problem is closed, but not by anything that was written down."""


@dataclass(slots=True)
class Domain:
    """What became of one domain."""

    places: tuple[Place, ...]
    nodes: list[int] = field(default_factory=list)  # where they are in the file
    children: list[int] = field(default_factory=list)
    boxes: bool = False
    closed: bool = False
    dropped: bool = False
    finished_by: list[tuple[int, int]] = field(default_factory=list)  # clause and whole domain
    covers: dict[tuple[Place, ...], int] | None = None  # where nodes are that close several children at once

    def begin_again(self) -> None:
        """Forget what it was split into."""
        self.children.clear()
        self.finished_by.clear()
        self.covers = None

    def cover(self, places: tuple[Place, ...]) -> int | None:
        """Where the nodes are that close a child, together with others."""
        if self.covers is None:
            return None
        return next((found for k in range(1, len(places)) if (found := self.covers.get(places[:k])) is not None), None)


class Ledger:
    """Keeps notes, and puts them in order at the end."""

    def __init__(self, log: NoteLog | None = None, left: Iterable[int] = ()) -> None:
        """Goes on with the notes of a log; `left` are domains that are open where the search goes on.

        The log may know more of them, which is told again by whoever searches them; so they begin anew, in the log as
        well.  What closes one of them stays true.  Raises InputError for domains that the log does not know.
        """
        self._log = NoteLog() if log is None else log
        self._domains: dict[int, Domain] = {}
        self._wholes: list[Born] = []
        self._sharper: dict[int, list[tuple[int, int]]] = {}  # group and place in the file, by box
        self._rooted: dict[int, list[tuple[int, int]]] = {}  # the same of the root
        self.root: Rooted | None = None
        self.leaves = 0
        for place, note in self._log.known():
            self._learn(place, note)
        anew = Anew(tuple(left))
        unknown = [number for number in anew.numbers if number not in self._domains]
        if unknown:
            raise InputError(f"the notes for the proof know nothing of domain {unknown[0]}; remove them to begin anew")
        if anew.numbers:
            self.keep([anew])

    def keep(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._learn(self._log.put(note), note)

    def counted(self) -> tuple[int, str]:
        """How far the log counts now, for a run that goes on from here.  Guarantee: it is on disk."""
        return self._log.counted()

    def _learn(self, place: int, note: Note) -> None:
        """From a note that is at a place in the file."""
        match note:
            case Born():
                self._born(note)
            case Said(number=number, last=last):
                domain = self._domains[number]
                if not domain.closed:  # two children may close their parent
                    domain.nodes.append(place)
                    domain.closed = last
            case Covered(number=number, places=places):
                covers = self._domains[number].covers or {}
                covers.setdefault(places, place)
                self._domains[number].covers = covers
            case Dropped(numbers=numbers):
                for number in numbers:
                    self._domains[number].dropped = True
            case Sharper(box=box, group=group, root=root):
                (self._rooted if root else self._sharper).setdefault(box, []).append((group, place))
            case Rooted():
                self.root = note
            case Anew(numbers=numbers):
                for number in numbers:
                    self._domains[number].begin_again()

    def _born(self, born: Born) -> None:
        self._domains[born.number] = Domain(born.places, boxes=born.boxes)
        if born.parent >= 0:
            self._domains[born.parent].children.append(born.number)
        elif born.finishes >= 0:
            self._domains[born.finishes].finished_by.append((born.clause, born.number))
        else:
            self._wholes.append(born)

    # ------------------------------------------------------------ what covers what

    def complete(self) -> set[int]:
        """The domains that are closed, by themselves or by what they were split into."""
        found: set[int] = set()
        for number, domain in reversed(self._domains.items()):  # whatever comes of a domain was born later
            parts = [*domain.children, *(part for _, part in domain.finished_by)]
            done = parts and all(part in found or self._cover(domain, part) is not None for part in parts)
            if not domain.dropped and (domain.closed or done):
                found.add(number)
        return found

    def _cover(self, parent: Domain, child: int) -> int | None:
        return parent.cover(self._domains[child].places)

    def subtrees(self, clauses: Sequence[int], box: Sequence[int]) -> list[tuple[list[int], int]]:
        """Complete whole domains for all these clauses of one box, each with the clauses that it stands for.

        Raises Incomplete if there are none.
        """
        complete, left = self.complete(), list(clauses)
        for born in self._wholes:
            if born.boxes and born.clause in box and born.number in complete and left:
                return [(left, born.number)]
        found = []
        for clause in left:
            known = [b.number for b in self._wholes if b.clause == clause and not b.boxes and b.number in complete]
            if not known:
                raise Incomplete(f"nothing that was written down closes clause {clause}")
            found.append(([clause], known[0]))
        return found

    def rooted(self, box: int, recalls: bool) -> Iterator[Written]:
        """The better bounds of hidden neurons that a box had from the beginning, lowest groups first.

        `recalls` says that its search has begun without them (`recalled`).
        """
        found = sorted(self._rooted.get(box, []))
        if found and recalls:
            yield Pieces().numbers(Node.KEEP).done()
        for _, place in found:
            yield self._log.pieces(place)

    def recalled(self, box: int) -> Iterator[Written]:
        """What was known before the better bounds of the root, if there were some."""
        if self._rooted.get(box):
            yield RECALL

    def sharper(self, box: int) -> Iterator[Written]:
        """The better bounds of hidden neurons of a box, lowest groups first; what was known before them is kept."""
        found = sorted(self._sharper.get(box, []))
        if found:
            yield Pieces().numbers(Node.KEEP).done()
        for _, place in found:
            yield self._log.pieces(place)

    def _moved(self, box: int) -> int:
        """The place in the file from which on domains of a box were closed with its better bounds."""
        return min((place for _, place in self._sharper.get(box, [])), default=0)

    # ------------------------------------------------------------ trees in prefix order

    def by_signs(self, box: int, number: int, clauses: int) -> Iterator[Written]:
        """The nodes of a domain and of all below it, on a whole box whose hidden neurons may have got better bounds.

        What was closed before that was closed by looser bounds, and is judged by these, whole subtrees at once:
        multipliers depend on bounds, so that sharper ones need not give a better value.
        """
        yield from self._below(number, [], clauses, self._moved(box))

    def by_boxes(self, number: int, finish: Sequence[Piece], clauses: int) -> Iterator[Written]:
        """The same of a box that was cut; `finish` begins a search by signs in it."""
        yield from self._below(number, finish, clauses, 0)

    def is_cut(self, number: int) -> bool:
        """Whether a domain is a box, rather than signs."""
        return self._domains[number].boxes

    def _below(self, number: int, finish: Sequence[Piece], clauses: int, moved: int) -> Iterator[Written]:
        """requires: the domain is complete; `clauses` is how many the property has"""
        old = self._before(number, moved) if moved else set()
        waiting: list[Item] = [number]
        if number in old:
            waiting.append(RECALL)
        while waiting:
            now = waiting.pop()
            if isinstance(now, list):
                yield now
                continue
            if isinstance(now, Nodes):
                yield self._log.pieces(now.place)
                self.leaves += 1
                continue
            domain = self._domains[now]
            for place in domain.nodes:
                yield self._log.pieces(place)
            if domain.closed:
                self.leaves += 1
            elif domain.finished_by:
                waiting += reversed([list(finish), *parted([([c], n) for c, n in domain.finished_by], clauses)])
            else:
                for item in reversed(list(self._parts(domain))):
                    waiting.append(item)
                    if now not in old and (item in old if isinstance(item, int) else _is_before(item, moved)):
                        waiting.append(RECALL)

    def _parts(self, domain: Domain) -> Iterator[Item]:
        """What a domain was split into, as splits and cuts one after the other."""
        below = [(self._domains[child].places, child) for child in domain.children]
        return _cut(below) if domain.boxes else _split(below, domain.covers or {})

    def _before(self, number: int, moved: int) -> set[int]:
        """The domains below a complete one whose last word was said before a place in the file."""
        order = [number]
        for known in order:  # it grows
            order += [] if self._domains[known].closed else self._domains[known].children
        found: set[int] = set()
        for known in reversed(order):
            domain = self._domains[known]
            covers = [(child, self._cover(domain, child)) for child in domain.children]
            parts = all(child in found if place is None else place < moved for child, place in covers)
            if domain.nodes[-1] < moved if domain.closed else parts:
                found.add(known)
        return found


class Nodes(NamedTuple):
    """Nodes that close something, by their place in the file."""

    place: int


Item = int | Written | Nodes
"""A domain, nodes, or nodes that are still in the file."""


def _is_before(item: Written | Nodes, moved: int) -> bool:
    return isinstance(item, Nodes) and item.place < moved


RECALL: Written = Pieces().numbers(Node.RECALL).done()
"""What was kept is all that is known."""


def parted(subtrees: Sequence[tuple[list[int], int]], clauses: int) -> Iterator[int | Written]:
    """Whole domains one after the other, each in the scope of its own clauses; the last one has what is left."""
    for place, (some, number) in enumerate(subtrees, 1):
        if place < len(subtrees):
            yield Pieces().numbers(Node.PART).members(chosen(clauses, some)).done()
        yield number


Below = list[tuple[tuple[Place, ...], int]]
"""Domains, and where they differ from a common parent."""


def _split(
    below: Below, covers: Mapping[tuple[Place, ...], int], above: tuple[Place, ...] = ()
) -> Iterator[int | Written | Nodes]:
    """Children that differ by signs of the same neurons, as one split after the other; `above` are those before."""
    if above in covers:
        yield Nodes(covers[above])
        return
    (places, number), *others = below
    if not others:
        if places:
            raise Incomplete("a domain lacks its sibling")
        yield number
        return
    group, neuron, _, *point = places[0]
    out = Pieces().numbers(Node.DIVIDE if point else Node.SPLIT, int(group), int(neuron))
    yield (out.doubles(float(point[0])) if point else out).done()
    for sign in (1, -1):
        mine = (group, neuron, sign, *point)
        side = [(rest, child) for (first, *rest), child in below if tuple(first) == mine]
        if not side:
            raise Incomplete("a domain lacks its sibling")
        yield from _split([(tuple(rest), child) for rest, child in side], covers, (*above, mine))


def _cut(below: Below) -> Iterator[int | Written]:
    """Children that are smaller boxes, as one cut after the other: some cut always has every child on one side."""
    if len(below) == 1:
        yield below[0][1]
        return
    for _, axis, _, end in _candidates(below):
        lower = [(places, child) for places, child in below if _ends(places, axis, -1, end)]
        upper = [(places, child) for places, child in below if _ends(places, axis, 1, end)]
        if len(lower) + len(upper) == len(below) and lower and upper:
            yield Pieces().numbers(Node.CUT, int(axis)).doubles(float(end)).done()
            yield from _cut(lower)
            yield from _cut(upper)
            return
    raise Incomplete("boxes do not cover their parent")


def _candidates(below: Below) -> Iterable[Place]:
    """Ends that may be cuts: of two boxes the one where they meet, else all of them."""
    if len(below) == 2:
        (first, _), (second, _) = below
        meeting = [place for place in first if (place[0], place[1], -place[2], place[3]) in second]
        if meeting:
            return meeting
    return sorted({place for places, _ in below for place in places})


def _ends(places: Sequence[Place], axis: int | float, side: int, end: int | float) -> bool:
    """Whether a box lies below (side -1) or above (1) an end, by an end of its own."""
    mine = [place[3] for place in places if place[1] == axis and place[2] == side]
    return any(value <= end if side < 0 else value >= end for value in mine)
