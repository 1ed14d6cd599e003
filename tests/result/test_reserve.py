"""The witness in reserve: the first one stays, whichever process found it."""

from __future__ import annotations

import os
import pickle
from functools import partial

import numpy as np
import pytest
from falsify import instances
from numpy.typing import NDArray

from verifier.processes import Forked, forkable
from verifier.property.property import Clause, Property, RoundedRows
from verifier.result.counterexample import HEADER, Counterexample, Reserve, replay

pytestmark = pytest.mark.skipif(not forkable(), reason="there are no forks here")


class First:
    """A network that answers its first input."""

    def run(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x[..., :1]


def witness(value: float, n: int = 1) -> Counterexample:
    """A point of [0, 1]^n, all of which is unsafe."""
    boxes = instances.boxes([[0] * n], [[1] * n])
    rows = RoundedRows.of([instances.row({0: 1}, 2)], n, 1, (boxes.lower[0], boxes.upper[0]))
    found = replay(np.full(n, value), First(), Property(n, 1, boxes, (Clause(0, rows),)), 0)
    assert found is not None
    return found


def test_nothing_is_found_at_first() -> None:
    assert Reserve().found() is None


def test_the_first_witness_stays() -> None:
    reserve = Reserve()
    reserve.keep(witness(0.25))
    reserve.keep(witness(0.5))
    found = reserve.found()
    assert found is not None
    assert found.x.tolist() == [0.25]


def test_what_a_fork_of_a_fork_keeps_is_found_here() -> None:
    reserve = Reserve()

    def inner(send: object) -> None:
        reserve.keep(witness(0.75, n=5000))

    def outer(send: object) -> None:
        with Forked(inner) as answer:
            answer.wait()

    with Forked(outer) as answer:
        answer.wait()
    found = reserve.found()
    assert found is not None
    assert found.x.tolist() == [0.75] * 5000
    assert not found.sharp


def test_several_forks_at_once_leave_one_whole_witness() -> None:
    made = [witness(value, n=20000) for value in (0.25, 0.5, 0.75)]

    def kept(reserve: Reserve, one: Counterexample, send: object) -> None:
        reserve.keep(one)

    for _ in range(5):
        reserve = Reserve()
        forks = [Forked(partial(kept, reserve, one)) for one in made]
        for fork in forks:
            fork.wait()
        found = reserve.found()
        assert found is not None
        assert set(found.x.tolist()) == set(found.y.tolist())


def test_half_a_witness_of_a_killed_process_counts_as_none() -> None:
    reserve, data = Reserve(), pickle.dumps(witness(0.25))
    assert reserve._file is not None
    os.pwrite(reserve._file, data[: len(data) // 2], HEADER)  # it was killed before it wrote the length
    assert reserve.found() is None
    reserve.keep(witness(0.5))
    again = Reserve.__new__(Reserve)  # another process: it knows the file only
    again._own, again._file = None, reserve._file
    found = again.found()
    assert found is not None
    assert found.x.tolist() == [0.5]


def test_who_comes_second_overwrites_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve, late = Reserve(), Reserve()
    reserve.keep(witness(0.25))
    monkeypatch.setattr(late, "_file", reserve._file)
    monkeypatch.setattr(late, "found", lambda: None)  # it looked before the other one wrote
    late.keep(witness(0.5))
    monkeypatch.setattr(reserve, "_own", None)
    found = reserve.found()
    assert found is not None
    assert found.x.tolist() == [0.25]


def test_nothing_stays_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Reserve().keep(witness(0.5))
    assert set(os.listdir("/proc/self/fd")) <= before
