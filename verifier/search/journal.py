"""What a search does, as events, and who listens to them: statistics, traces, and whoever writes down a proof.

A domain is born by a split (the whole problem by one of nobody), bounded, and then closed, split, superseded or left
undecided, each of them once; what is none of these is open.  `docs/search.md` lists the events.

Events happen in several processes.  What a listener wants to keep of an event, its note, is made where the event
happens; notes are kept in the first process, in an order in which every domain is born before anything else is heard
of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from verifier.bounding.core.base import Bound, Objective
from verifier.processes import Tickets
from verifier.result.verdict import Reason
from verifier.search.domains import Counts
from verifier.search.look import Look
from verifier.shapes import Bool, Float, Int, Tensor

Place = tuple[int | float, ...]
"""Where a domain differs from its parent: group, neuron and sign; or 0, input, side (-1: above) and the new end."""


class By(Enum):
    """What closed a domain."""

    BOUND = "bound"  # of its tier, above zero
    CROSSED = "crossed"  # bounds of a hidden neuron that contradict each other, or its sign
    LEAF = "leaf"  # the linear program of a domain without ambiguous neurons
    CLIPPED = "clipped"  # nothing is left of the box
    FINISHED = "finished"  # a search of its own


@dataclass(frozen=True, eq=False)
class Event:
    """Something that a search did."""


@dataclass(frozen=True, eq=False)
class Merged(Event):
    """So many neurons said the same as others and were merged before the search."""

    neurons: int


@dataclass(frozen=True, eq=False)
class Settled(Event):
    """These clauses of the property were closed by bounds of the root, before the search."""

    clauses: tuple[int, ...]
    evidence: Callable[[], object]


@dataclass(frozen=True, eq=False)
class Implied(Event):
    """Domains of whole boxes begin with signs that their clauses, numbers of the property, imply."""

    number: Int[Tensor, " D"]
    clause: Int[Tensor, " D"]
    places: Callable[[], list[list[Place]]]


@dataclass(frozen=True, eq=False)
class Split(Event):
    """Domains were born; their parents are thereby split.  The parent of a whole box is -1.

    `clause` is a number of the property (of boxes: the worst clause so far); `domains` are those of the space.
    """

    number: Int[Tensor, " D"]
    parent: Int[Tensor, " D"]
    clause: Int[Tensor, " D"]
    domains: object
    places: Callable[[], list[list[Place]]]


@dataclass(frozen=True, eq=False)
class Narrowed(Event):
    """Neurons of domains were bounded anew in their own regions; `looked` says which, in the groups from `first` on."""

    number: Int[Tensor, " D"]
    first: int
    looked: tuple[Bool[Tensor, "D _"], ...]


@dataclass(frozen=True, eq=False)
class Bounded(Event):
    """Domains were bounded together; `lower` without regard to rounding."""

    number: Int[Tensor, " D"]
    lower: Float[Tensor, " D"]
    tier: str


@dataclass(frozen=True, eq=False)
class Looked(Event):
    """The lowest tier was compared with the same without cuts, and one of both goes on."""

    look: Look


@dataclass(frozen=True, eq=False)
class Clipped(Event):
    """Boxes that stay open, and what clipping left of them: for many all that there was."""

    number: Int[Tensor, " D"]
    before: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]
    after: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]
    evidence: Callable[[], object]


@dataclass(frozen=True, eq=False)
class LeafSolved(Event):
    """The linear program of a leaf was solved; it is no longer counted under its tier."""

    number: int
    tier: str


@dataclass(frozen=True, eq=False)
class Finishing(Event):
    """A box goes to a search of its own; until the next word on it, whole domains born in this process are its."""

    number: int


@dataclass(frozen=True, eq=False)
class Closed(Event):
    """Domains hold no counterexample.  `evidence` gives the domains and what proves it; it costs nothing if unused."""

    number: Int[Tensor, " D"]
    by: By
    evidence: Callable[[], object]


@dataclass(frozen=True, eq=False)
class Undecided(Event):
    """A domain that can be neither split nor decided."""

    number: int
    reason: Reason


@dataclass(frozen=True, eq=False)
class Stepped(Event):
    """All has been said of the domains that one step bounded."""

    number: Int[Tensor, " D"]
    iterations: int
    seconds: float  # inside of bounding calls and linear programs


@dataclass(frozen=True, eq=False)
class Improved(Event):
    """Hidden neurons of a whole box of the property were bounded again: the rows are +e_i and -e_i at one group.

    `known` holds the bounds of that group so far; whatever is better from now on is `found`.
    """

    box: int
    known: tuple[Float[Tensor, "1 n"], Float[Tensor, "1 n"]]
    rows: Objective
    found: Bound


@dataclass(frozen=True, eq=False)
class Moved(Event):
    """Open domains go on in another space, with sharper bounds and the same numbers."""

    number: Int[Tensor, " D"]


@dataclass(frozen=True, eq=False)
class Superseded(Event):
    """Open domains that are dropped: `by` is the domain that covers each; -1: the other domains of its clause do."""

    number: Int[Tensor, " D"]
    by: Int[Tensor, " D"]


class Listener(ABC):
    """Keeps something of what happens."""

    @abstractmethod
    def note(self, event: Event) -> object | None:
        """What to keep of an event, in a form that can be pickled; None for nothing.  Called where it happens."""

    @abstractmethod
    def keep(self, note: object) -> None:
        """Called in the first process."""

    def envoy(self) -> Listener:
        """One for another machine: it can be pickled, and makes the same notes there; nobody asks it to keep any."""
        return self


class Statistician(Listener):
    """Counts."""

    def __init__(self) -> None:
        self.counts = Counts()

    def note(self, event: Event) -> Counts | None:
        match event:
            case Bounded(number=number, tier=tier):
                return Counts({tier: len(number)})
            case Looked(look=look):
                return Counts(looks=(look,))
            case LeafSolved(tier=tier):
                return Counts({tier: -1}, leaves=1)
            case Stepped(iterations=iterations, seconds=seconds):
                return Counts(batches=1, iterations=iterations, seconds=seconds)
        return None

    def keep(self, note: object) -> None:
        assert isinstance(note, Counts)
        self.counts = self.counts + note


Note = tuple[int, int, object]
"""Of which journal, counted from the first one above, and of which of its listeners; number 0 counts."""

BLOCK = 2**40
"""Numbers for all domains that one process of another machine makes."""


class Journal:
    """Hears the events of a search, and hands them on to the journal above it.  Every journal counts."""

    def __init__(self, listeners: Sequence[Listener] = (), above: Journal | None = None) -> None:
        self._statistician = Statistician()
        self._listeners = (self._statistician, *listeners)
        self._above = above
        self._line: tuple[Journal, ...] = (self,) if above is None else (*above._line, self)
        self._tickets: Tickets = Tickets() if above is None else above._tickets
        self._outbox: list[Note] | None = None  # of a fork

    @property
    def counts(self) -> Counts:
        return self._statistician.counts

    def begin_with(self, counts: Counts) -> None:
        """What an earlier run has done counts as well."""
        self._statistician.counts = self._statistician.counts + counts

    def counted(self, notes: Sequence[Note]) -> Counts:
        """What notes of a fork add to the counts of this journal."""
        total = Counts()
        for level, listener, note in notes:
            if self._line[level] is self and isinstance(note, Counts) and listener == 0:
                total = total + note
        return total

    def envoys(self) -> tuple[Listener, ...]:
        """The listeners of a journal on another machine whose notes this one can `receive`.

        Require: no journal is above this one.
        """
        assert self._above is None
        return tuple(listener.envoy() for listener in self._listeners[1:])

    def confine(self, block: range) -> None:
        """This process is on another machine, and numbers its domains by a block that was taken for it at home."""
        self._tickets.confine(block)

    def numbers(self, count: int) -> range:
        """Numbers that no other domain has, in whatever search or process."""
        return self._tickets.take(count)

    @property
    def numbered(self) -> int:
        """How many numbers have been given."""
        return self._tickets.take(0).stop

    def hear(self, event: Event) -> None:
        for k, listener in enumerate(self._listeners):
            note = listener.note(event)
            if note is not None:
                self._keep(k, note)
        if self._above is not None:
            self._above.hear(event)

    def _keep(self, listener: int, note: object) -> None:
        if self._outbox is None:
            self._listeners[listener].keep(note)
        else:
            self._outbox.append((len(self._line) - 1, listener, note))

    def go_abroad(self) -> None:
        """This process is a fork: from now on the notes for this journal and those above it wait to be sent."""
        outbox: list[Note] = []
        for journal in self._line:
            journal._outbox = outbox
            journal._statistician.counts = Counts()

    def sent(self) -> list[Note]:
        """The notes that wait; they do so no longer.  Require: this process is a fork."""
        assert self._outbox is not None
        notes = self._outbox[:]
        self._outbox.clear()
        return notes

    def receive(self, notes: Sequence[Note]) -> None:
        """Keep what a fork has sent, or send it on."""
        for level, listener, note in notes:
            self._line[level]._keep(listener, note)
