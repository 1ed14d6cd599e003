"""Writes the proof of an `unsat`: listens to the search, and puts what it heard in order at the end.

requires:   a search whose domains are closed by what is written down (`attest.AsWritten`)
guarantees: a file that is complete, or none, also if the process is killed (`output.unseen`)
source:     docs/proofs.md
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.base import Bound, Objective
from verifier.bounding.core.closing import closes, crossed
from verifier.bounding.hidden import Ends
from verifier.output import unseen
from verifier.proofs.attest import Attested
from verifier.proofs.boxes import BoxScribe
from verifier.proofs.encode import Encoder, Wording
from verifier.proofs.hidden import intervals, root_bounds
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.ledger import Born, Dropped, Ledger, Note, Said, Sharper, Written, parted
from verifier.proofs.merges import merges
from verifier.proofs.signs import SignScribe, closing
from verifier.proofs.stream import Node, Pieces, SetTable, chosen, sets
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
    Settled,
    Split,
    Superseded,
    Undecided,
)
from verifier.search.signs.root import Batch

VERSION = 1
GATHERED = 2**16
"""Bytes that are compressed at a time."""


@dataclass(frozen=True)
class ProofFile:
    """A proof that was written."""

    path: str
    bytes: int
    sha256: str
    leaves: int

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.path, "bytes": self.bytes, "sha256": self.sha256, "leaves": self.leaves}


class ProofWriter(Listener):
    """Hears one run.  `kinds` says how the bounds of hidden neurons are computed (docs/proofs.md, `default`)."""

    def __init__(self, problem: Problem, kinds: int, scribe: type[SignScribe] = SignScribe) -> None:
        self._problem, self._kinds = problem, kinds
        self._ledger = Ledger()
        self._settled: dict[int, Written] = {}
        self._boxes, self._lambdas = BoxScribe(problem), Lambdas(problem)
        self._signs = scribe(self._lambdas)
        self._sharp: frozenset[int] = frozenset()  # boxes that a search by signs begins with as the root has them
        self._finishing = -1  # the box that a search by signs is at work on, in this process

    # ------------------------------------------------------------ listening

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
            case Settled(evidence=evidence):
                self.settled(evidence())
        return None

    def keep(self, note: object) -> None:
        assert isinstance(note, list)
        self._ledger.keep(note)

    def improved(self, known: Ends, rows: Objective, found: Bound) -> None:
        """Hidden neurons of whole boxes have better bounds before anything is closed."""
        assert isinstance(found.state, Attested)
        region = found.state.sweep.region
        for d in range(region.count):
            same = (self._problem.lower == region.lower[d]) & (self._problem.upper == region.upper[d])
            one = slice(d, d + 1)
            own = Improved(-1, (known[0][one], known[1][one]), rows, replace(found, lower=found.lower[one]))
            for box in torch.nonzero(same.all(dim=1)).flatten().tolist():
                state = found.state.select(one)
                notes = _improved(replace(own, box=box, found=replace(own.found, state=state)))
                self._ledger.keep(replace(note, root=True) for note in notes)

    def settled(self, found: Any) -> None:
        """Clauses that the bounds of the root close: by intervals, or by slopes that need not be written down."""
        assert isinstance(found, ClauseBounds)
        self._sharp = frozenset(found.regions)
        for clause in torch.nonzero(closes(found.lower)).flatten().tolist():
            row, linear = found.best[clause]
            (own,) = self._lambdas.words([clause], np.eye(len(self._problem.rows[clause].c))[row : row + 1])
            self._settled[clause] = closing(clause, own, _by_default(self._problem, linear))

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
                yield from _improved(event)
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

    # ------------------------------------------------------------ the file

    def write(self, path: str, header: dict[str, Any]) -> ProofFile:
        """Writes the proof.  Raises Incomplete if there is a hole in it, and OSError."""
        place = Path(os.path.realpath(path))
        with unseen(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps({"format": "strata-proof", "version": VERSION} | header))
            if self._problem.merged:
                archive.writestr("merged.bin", merges(self._problem.merged))
            with archive.open("proof.bin", "w", force_zip64=True) as stream:
                gathered = io.BufferedWriter(stream, GATHERED)
                self._stream(gathered.write)
                gathered.detach()  # it is flushed, and `stream` stays open
        return ProofFile(path, place.stat().st_size, _sha256(place), self._ledger.leaves + len(self._settled))

    def _stream(self, write: Any) -> None:
        table, count = SetTable(), len(self._problem.rows)
        for box, clauses in enumerate(self._problem.clauses_of):
            if clauses:
                write(table.written(Pieces().members(chosen(count, clauses)).done()))
                for pieces in self._tree(box, clauses):
                    write(table.written(pieces))

    def _tree(self, box: int, clauses: Sequence[int]) -> Iterator[Written]:
        """The proof of all clauses of one box."""
        default = root_bounds(self._problem.network, self._kinds)
        left = [clause for clause in clauses if clause not in self._settled]
        count, subtrees = len(self._problem.rows), self._ledger.subtrees(left, clauses) if left else []
        by_signs = bool(left) and not self._ledger.is_cut(subtrees[0][1])
        recalls = bool(left) and not (by_signs and box in self._sharp)
        yield default
        yield from self._ledger.rooted(box, recalls)
        for clause in clauses:
            if clause in self._settled:
                yield self._settled[clause]
        if recalls:
            yield from self._ledger.recalled(box)
        if by_signs:
            yield from self._ledger.sharper(box)
        for item in parted(subtrees, count):
            if not isinstance(item, int):
                yield item
            elif by_signs:
                yield from self._ledger.by_signs(box, item, count)
            else:
                yield from self._ledger.by_boxes(item, default, count)


def _born(event: Split, boxes: bool, finishes: int) -> Iterator[Born]:
    columns = event.number.tolist(), event.parent.tolist(), event.clause.tolist(), event.places()
    for number, parent, clause, places in zip(*columns, strict=True):
        yield Born(number, parent, clause, tuple(map(tuple, places)), boxes, finishes)


def _improved(event: Improved) -> Iterator[Sharper]:
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


def _by_default(problem: Problem, linear: bool) -> Written:
    """A witness without numbers: CROWN's slopes, or the intervals of the last layer."""
    return intervals(0 if linear else len(problem.network.groups))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
