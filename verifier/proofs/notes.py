"""What a proof wants to know of the events of a search, as notes; made where the events happen, on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from verifier.bounding.core.closing import crossed
from verifier.proofs.attest import Attested
from verifier.proofs.boxes import BoxScribe
from verifier.proofs.encode import Encoder, Wording
from verifier.proofs.hidden import intervals
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.log import Born, Dropped, Note, Said, Sharper
from verifier.proofs.signs import SignScribe
from verifier.proofs.stream import Node, Pieces, chosen, sets
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import BoxBounds
from verifier.search.boxes.boxes import BoxDomains
from verifier.search.implied import forcing_rows
from verifier.search.journal import (
    By,
    Clipped,
    Closed,
    Event,
    Finishing,
    Implied,
    Improved,
    Listener,
    Narrowed,
    Split,
    Superseded,
    Undecided,
)
from verifier.search.signs.root import Batch


class ProofNotes(Listener):
    """Makes notes and keeps none."""

    def __init__(self, problem: Problem, scribe: type[SignScribe] = SignScribe) -> None:
        self._problem, self._scribe = problem, scribe
        self._boxes, self._signs = BoxScribe(problem), scribe(Lambdas(problem))
        self._finishing = -1  # the box that a search by signs is at work on, in this process

    def keep(self, note: object) -> None:
        raise AssertionError("notes are kept in the first process")

    def envoy(self) -> ProofNotes:
        return ProofNotes(self._problem, self._scribe)

    def note(self, event: Event) -> list[Note] | None:
        match event:
            case Split(domains=Batch()):
                self._signs.born(event)
                return list(_born(event, False, self._finishing))
            case Split():
                return list(_born(event, True, -1))
            case Finishing(number=number):
                self._finishing = number
            case Closed(number=number, by=By.CROSSED, evidence=evidence) if len(number):
                return list(self._crossed(number.tolist(), evidence()))
            case Closed(by=By.FINISHED) | Undecided():
                self._finishing = -1
            case Closed(number=number, evidence=evidence) if len(number):
                return list(self._closed(number.tolist(), evidence()))
            case Clipped(number=number, evidence=evidence) if len(number):
                return list(self._clipped(number.tolist(), evidence()))
            case Superseded(number=number) if len(number):
                return [Dropped(tuple(number.tolist()))]
            case Implied() | Improved() | Narrowed():
                return list(self._known(event))
        return None

    def _closed(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        match evidence:
            case Batch() as batch, Attested() as proof:
                yield from self._signs.closed(numbers, batch, proof)
            case BoxDomains() as boxes, BoxBounds() as found:
                yield from self._boxes.closed(numbers, boxes, found)

    def _clipped(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        boxes, found = evidence
        yield from self._boxes.clipped(numbers, boxes, found)

    def _known(self, event: Implied | Improved | Narrowed) -> Iterator[Note]:
        """Bounds of neurons: those that clauses imply, those of whole boxes that were sharpened, those of children."""
        match event:
            case Improved():
                yield from improvements(event)
            case Narrowed():
                yield from _narrowed(event)
            case Implied(number=number, clause=clause):
                for own, implying in zip(number.tolist(), clause.tolist(), strict=True):
                    for row in forcing_rows(self._problem, implying):
                        yield Said(own, Pieces().numbers(Node.IMPLY, row).done(), last=False)

    def _crossed(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        batch, _ = evidence
        low, high = batch.cut()
        kinks = crossed(low, high).int().argmax(dim=1).tolist()
        for number, kink in zip(numbers, kinks, strict=True):
            yield Said(number, Pieces().numbers(Node.EMPTY, *batch.root.place(kink)).done(), last=True)


def _born(event: Split, boxes: bool, finishes: int) -> Iterator[Born]:
    columns = event.number.tolist(), event.parent.tolist(), event.clause.tolist(), event.places()
    for number, parent, clause, places in zip(*columns, strict=True):
        yield Born(number, parent, clause, tuple(map(tuple, places)), boxes, finishes)


def improvements(event: Improved) -> Iterator[Sharper]:
    """Those bounds of hidden neurons that are better than what is known: a node for each."""
    k, proof = event.rows.layer, event.found.state
    assert isinstance(proof, Attested)
    encoded = Encoder(proof.witness, proof.sweep, Wording(proof.precision), proof.rows).encoded()
    rows, neurons = event.rows.coefficients[0].max(dim=1).values > 0, event.rows.coefficients[0].abs().argmax(dim=1)
    known = torch.where(rows, event.known[0][0, neurons], -event.known[1][0, neurons])
    better = event.found.lower[0] > known
    for s in torch.nonzero(better).flatten().tolist():
        one = chosen(event.rows.coefficients.shape[-1], [int(neurons[s])])
        sides = (one, np.zeros_like(one)) if bool(rows[s]) else (np.zeros_like(one), one)
        out = Pieces().numbers(Node.IMPROVE, k).members(sides[0]).members(sides[1])
        yield Sharper(event.box, k, out.add(encoded[s]).done())


def _narrowed(event: Narrowed) -> Iterator[Note]:
    """Neurons that were bounded anew in domains, from both sides: by intervals, and by CROWN's slopes."""
    groups = [sets(looked.cpu().numpy(), keep=True) for looked in event.looked]
    if not groups:
        return  # nothing follows the group that was split
    for number, members in zip(event.number.tolist(), zip(*groups, strict=True), strict=True):
        out = Pieces()
        for k, some in enumerate(members, event.first):
            for plain in (k - 1, 0):
                out.numbers(Node.IMPROVE, k).add([some, some]).add(intervals(plain))
        yield Said(number, out.done(), last=False)
