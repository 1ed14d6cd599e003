"""Searches that begin with a long computation: every part of it is a step."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Search
from verifier.search.prepared import Prepared


class Once(Search):
    """Ends at its first step."""

    def __init__(self, number: int) -> None:
        self.number, self.closed = number, False
        self.progress, self.outcome = Progress(lower=-1.0), None

    def step(self) -> None:
        self.outcome = Outcome(None, Reason.LIMIT, self.progress)

    def close(self) -> None:
        self.closed = True


def test_the_search_is_made_of_the_last_part() -> None:
    made: list[Once] = []
    seen: list[int] = []

    def parts() -> Iterator[int]:
        for number in range(1, 4):
            seen.append(number)
            yield number

    def make(number: int) -> Search:
        made.append(Once(number))
        return made[-1]

    search = Prepared(parts(), make, -5.0)
    assert (search.progress.lower, search.progress.left) == (-5.0, 1.0)
    for step in (1, 2, 3):
        search.step()
        assert seen == list(range(1, step + 1))
        assert not made
        assert search.outcome is None
    search.step()
    assert [one.number for one in made] == [3]
    assert search.outcome is not None
    assert search.outcome.reason is Reason.LIMIT
    assert search.progress.lower == -1.0
    search.close()
    assert made[0].closed


def test_it_can_be_left_before_it_begins() -> None:
    search = Prepared(iter([1]), Once, 0.0)
    search.step()
    search.close()
    assert search.outcome is None
