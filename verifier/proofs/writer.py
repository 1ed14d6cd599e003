"""Writes the proof of an `unsat`: listens to the search, and puts what it heard in order at the end.

requires:   a search whose domains are closed by what is written down (`attest.AsWritten`)
guarantees: a file that is complete, or none, also if the process is killed (`output.unseen`)
source:     docs/proofs.md
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.closing import closes, crossed
from verifier.network.network import Network
from verifier.output import unseen
from verifier.proofs.attest import Attested
from verifier.proofs.boxes import BoxScribe
from verifier.proofs.encode import Encoder, has_sum
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.ledger import Born, Dropped, Ledger, Note, Said, Sharper, Written, parted
from verifier.proofs.merges import merges
from verifier.proofs.stream import Node, Piece, Pieces, SetTable, chosen
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import BoxBounds
from verifier.search.boxes.boxes import BoxDomains
from verifier.search.journal import (
    By,
    Clipped,
    Closed,
    Event,
    Finishing,
    Implied,
    Improved,
    Listener,
    Settled,
    Split,
    Superseded,
    Undecided,
)
from verifier.search.signs.implied import forcing_rows
from verifier.search.signs.root import Batch
from verifier.shapes import Float, Tensor

VERSION = 1
ADAPTIVE = 1
"""The kind of bounds that are CROWN's."""

PLAIN = 8
"""The flag of a group whose multipliers are all zero: intervals."""


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

    def __init__(self, problem: Problem, kinds: int) -> None:
        self._problem, self._kinds = problem, kinds
        self._ledger = Ledger()
        self._settled: dict[int, Written] = {}
        self._boxes, self._lambdas = BoxScribe(problem), Lambdas(problem)
        self._finishing = -1  # the box that a search by signs is at work on, in this process

    # ------------------------------------------------------------ listening

    def note(self, event: Event) -> list[Note] | None:
        match event:
            case Split(domains=Batch()):
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
            case Implied() | Improved():
                return list(self._known(event))
            case Settled(evidence=evidence):
                self.settled(evidence())
        return None

    def keep(self, note: object) -> None:
        assert isinstance(note, list)
        self._ledger.keep(note)

    def settled(self, found: Any) -> None:
        """Clauses that the bounds of the root close: by intervals, or by slopes that need not be written down."""
        assert isinstance(found, ClauseBounds)
        for clause in torch.nonzero(closes(found.lower)).flatten().tolist():
            weights = torch.zeros(len(self._problem.rows[clause].c), dtype=torch.float64)
            row, linear = found.best[clause]
            weights[row] = 1.0
            self._settled[clause] = self._close(clause, weights, _by_default(self._problem, linear))

    def _closed(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        match evidence:
            case Batch() as batch, Attested() as proof:
                yield from self._signs(numbers, batch, proof)
            case BoxDomains() as boxes, BoxBounds() as found:
                yield from self._boxes.closed(numbers, boxes, found)

    def _clipped(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        boxes, found = evidence
        yield from self._boxes.clipped(numbers, boxes, found)

    def _signs(self, numbers: list[int], batch: Batch, proof: Attested) -> Iterator[Note]:
        encoder = Encoder(proof.witness, proof.sweep)
        clauses = batch.root.numbers[batch.clause].tolist()
        for d, (number, clause) in enumerate(zip(numbers, clauses, strict=True)):
            weights = proof.witness.weights
            rows = torch.ones(1, dtype=torch.float64) if weights is None else weights[d, 0]
            witness = encoder.encoded((d, 0), proof.precision, self._lambdas.unit(clause))
            yield Said(number, self._close(clause, rows, witness), last=True)

    def _known(self, event: Implied | Improved) -> Iterator[Note]:
        """Bounds on whole boxes: those that clauses imply, and those that were sharpened."""
        if isinstance(event, Improved):
            yield from _improved(event)
            return
        for number, clause in zip(event.number.tolist(), event.clause.tolist(), strict=True):
            for row in forcing_rows(self._problem, clause):
                yield Said(number, Pieces().numbers(Node.IMPLY, row).done(), last=False)

    def _crossed(self, numbers: list[int], evidence: Any) -> Iterator[Note]:
        batch, _ = evidence
        low, high = batch.cut()
        kinks = crossed(low, high).int().argmax(dim=1).tolist()
        for number, kink in zip(numbers, kinks, strict=True):
            yield Said(number, Pieces().numbers(Node.EMPTY, *batch.root.place(kink)).done(), last=True)

    def _close(self, clause: int, weights: Float[Tensor, " m"], witness: Sequence[Piece]) -> Written:
        lambdas = self._lambdas.bytes_of(clause, weights.cpu().numpy())
        return Pieces().numbers(Node.CLOSE, clause).raw(lambdas).add(witness).done()

    # ------------------------------------------------------------ the file

    def write(self, path: str, header: dict[str, Any]) -> ProofFile:
        """Writes the proof.  Raises Incomplete if there is a hole in it, and OSError."""
        place = Path(os.path.realpath(path))
        with unseen(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps({"format": "strata-proof", "version": VERSION} | header))
            if self._problem.merged:
                archive.writestr("merged.bin", merges(self._problem.merged))
            with archive.open("proof.bin", "w", force_zip64=True) as stream:
                self._stream(stream.write)
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
        default = _bounds(self._problem.network, self._kinds)
        yield default
        for clause in clauses:
            if clause in self._settled:
                yield self._settled[clause]
        left = [clause for clause in clauses if clause not in self._settled]
        if not left:
            return
        count, subtrees = len(self._problem.rows), self._ledger.subtrees(left, clauses)
        by_signs = not self._ledger.is_cut(subtrees[0][1])
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


def _improved(event: Improved) -> Iterator[Note]:
    """Those bounds of hidden neurons that are better than what is known: a node for each."""
    k, proof = event.rows.layer, event.found.state
    assert isinstance(proof, Attested)
    encoder = Encoder(proof.witness, proof.sweep)
    rows, neurons = event.rows.coefficients[0].max(dim=1).values > 0, event.rows.coefficients[0].abs().argmax(dim=1)
    known = torch.where(rows, event.known.l_hat[k - 1][0, neurons], -event.known.u_hat[k - 1][0, neurons])
    better = event.found.lower[0] > known
    for s in torch.nonzero(better).flatten().tolist():
        one = chosen(event.rows.coefficients.shape[-1], [int(neurons[s])])
        sides = (one, np.zeros_like(one)) if bool(rows[s]) else (np.zeros_like(one), one)
        out = Pieces().numbers(Node.IMPROVE, k).members(sides[0]).members(sides[1])
        yield Sharper(event.box, k, out.add(encoder.encoded((0, s), proof.precision)).done())


def _bounds(net: Network, kinds: int) -> Written:
    """Bounds of all hidden neurons as a search begins with them.

    The checker adds up the absolute values of maps that are added.  Where these cancel, as differences in a MaxPool do,
    one step back through the sum itself gives its intervals; what builds upon them follows group by group.
    """
    cancels = [any(has_sum(term) for _, term in group.terms) for group in net.groups]
    if not kinds & ADAPTIVE or not any(cancels):
        return Pieces().numbers(Node.DEFAULT, 1, kinds).done()
    out = Pieces().numbers(Node.DEFAULT, 1, 0)
    for k, group in enumerate(net.groups, 1):
        every = np.ones(group.size, dtype=bool)
        for plain in (k - 1, 0):
            out.numbers(Node.IMPROVE, k).members(every).members(every).add(_intervals(plain))
    return out.done()


def _intervals(groups: int) -> Written:
    """A witness that takes the boxes of what a layer reads, after so many groups."""
    out = Pieces().numbers(1, groups)
    for k in range(groups, 0, -1):
        out.numbers(k, PLAIN)
    return out.done()


def _by_default(problem: Problem, linear: bool) -> Written:
    """A witness without numbers: CROWN's slopes, or the intervals of the last layer."""
    return _intervals(0 if linear else len(problem.network.groups))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
