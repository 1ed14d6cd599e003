"""Very many boxes, of which not all fit into the memory with their bounds: one group of them after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verifier.bounding.core.base import Until
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress, outweighed
from verifier.search.loop import Limits, Search
from verifier.search.saved import Members, SavedGroups


@dataclass(frozen=True, eq=False)
class Group:
    """Some boxes: what is known of them, how their search is made, and which they are."""

    worst: float
    make: Callable[[Limits], Search]
    members: tuple[Members, ...] = ()


class OneAfterAnother(Search):
    """Searches of groups of boxes.  When time is up, none of them begins."""

    def __init__(self, groups: Sequence[Group], limits: Limits, until: Until, saved: SavedGroups | None = None) -> None:
        """With `saved`, where another run was: the groups are those that it has left."""
        self._groups, self._limits, self._until = list(groups), limits, until
        self._now: Search | None = None
        self._members: tuple[Members, ...] = ()  # of the search that is going on
        self._done = Progress() if saved is None else saved.done
        self._doubt: Reason | None = None if saved is None else saved.doubt
        self.progress = self._with_waiting()
        self.outcome = None

    def _with_waiting(self) -> Progress:
        """What is done, and what is known of the groups that wait."""
        return self._done.waiting(min((group.worst for group in self._groups), default=float("inf")))

    def step(self) -> None:
        if self._now is None:
            if self._until.expired():
                self.outcome = Outcome(None, Reason.TIMEOUT, self.progress)
                return
            group = self._groups.pop(0)
            self._now, self._members = group.make(self._limits.after(self._done.counts)), group.members
        self._now.step()
        self.progress = self._with_waiting() + self._now.progress
        if self._now.outcome is not None:
            self._heed(self._now.outcome)

    def _heed(self, outcome: Outcome) -> None:
        """The search of one group has ended."""
        self.close()
        self._now = None
        self._done = self._done + outcome.progress
        self._doubt = outweighed(self._doubt, outcome.reason)
        if outcome.witness is not None:
            self.outcome = Outcome(outcome.witness, None, self._done)
        elif outcome.reason in (Reason.TIMEOUT, Reason.LIMIT):
            self.outcome = Outcome(None, outcome.reason, self.progress)
        elif not self._groups:
            self.outcome = Outcome(None, self._doubt, self._done)
        else:
            self.progress = self._with_waiting()
            if self._limits.reached(self._done.counts):
                self.outcome = Outcome(None, Reason.LIMIT, self.progress)

    def saved(self, room: int) -> SavedGroups:
        waiting = [group.members for group in self._groups]
        if self._now is None:
            return SavedGroups(tuple(waiting), None, self._done, self._doubt)
        return SavedGroups((self._members, *waiting), self._now.saved(room), self._done, self._doubt)

    def close(self) -> None:
        if self._now is not None:
            self._now.close()
