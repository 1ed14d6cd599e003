"""Bounds without branching: of all clauses by CROWN, to choose problems, and of one clause by every method.

One thread; seconds are CPU seconds of a call that bounds one row, with the bounds of hidden neurons given.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from paper.ledger import Bounded, bound_key
from paper.plan import Method
from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.base import Bounder, Objective, Region, Until
from verifier.config import load_config
from verifier.errors import InputError
from verifier.loading import given
from verifier.machine import Machine
from verifier.network.network import Network
from verifier.pipeline import Request, load_problem

ALONE = Machine("cpu", 1)


@dataclass(frozen=True, eq=False)
class Clauses:
    """A property with bounds of all hidden neurons; every clause is one row."""

    net: Network
    region: Region
    rows: Objective

    @classmethod
    def load(cls, network: Path, prop: Path, intermediate: str) -> Clauses:
        """Network and property as `verify bounds` takes them."""
        request = Request(given(str(network), str(prop), (None, None, None), None), load_config("auto"), ALONE, 0)
        with ALONE.taken():
            problem, _ = load_problem(request, request.status())
            net = problem.network
            region = HIDDEN.build(intermediate).region(net, problem.lower, problem.upper, Until())
        A, c = (torch.cat([getattr(rows, side) for rows in problem.rows]).unsqueeze(0) for side in ("A", "c"))
        return cls(net, region, Objective(len(net.layers), A, None, -c))

    def lower(self, method: str) -> tuple[float, ...]:
        """The bounds of all clauses in one call."""
        with ALONE.taken():
            found = BOUNDERS.build(method).bound(self.net, self.region, self.rows, Until()).lower
        return tuple(found[0].tolist())

    def bounded(self, clause: int, method: Method) -> Iterator[tuple[str, float, float]]:
        """Name, bound and CPU seconds of a method and of its stages."""
        heard: list[tuple[float, float]] = []
        begun = time.process_time()
        bounder = built(method).watched(lambda lower: heard.append((float(lower[0, 0]), time.process_time() - begun)))
        with ALONE.taken():
            found = bounder.bound(self.net, self.region, self.rows.part(clause, clause + 1), Until())
        yield method.name, float(found.lower[0, 0]), time.process_time() - begun
        for name, following in method.stages.items():
            until_then = heard[: len(heard) - following]
            yield name, max(lower for lower, _ in until_then), until_then[-1][1]


def built(method: Method) -> Bounder:
    """The bounder of a method.  Raises InputError if there is none with such options."""
    try:
        return BOUNDERS.build(method.bounder, dict(method.options) or None)
    except msgspec.ValidationError as error:
        raise InputError(f"{method.bounder} has no such option: {error}") from error


def missing(methods: Iterable[Method]) -> dict[str, str]:
    """The methods that there are not, by name, and why."""
    found = {}
    for method in methods:
        try:
            built(method)
        except InputError as error:
            found[method.name] = str(error)
    return found


@dataclass(frozen=True)
class Cell:
    """One clause of one property, and the methods that bound it."""

    network: str
    problem: str
    clause: int
    methods: tuple[Method, ...]

    def left(self, known: Iterable[str]) -> tuple[Method, ...]:
        """The methods without a result.  A stage that is missing brings its whole run back."""
        done = set(known)
        return tuple(m for m in self.methods if any(self._key(name, m) not in done for name in (m.name, *m.stages)))

    def bounded(self, clauses: Clauses, method: Method) -> Iterator[Bounded]:
        """The result of a method, and of its stages."""
        for name, lower, seconds in clauses.bounded(self.clause, method):
            place = self.network, self.problem, self.clause
            yield Bounded(*place, name, lower, seconds, dict(method.options))

    def _key(self, name: str, method: Method) -> str:
        return bound_key(self.network, self.problem, self.clause, name, dict(method.options))
