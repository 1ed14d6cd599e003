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
from verifier.bounding.core.closing import closes
from verifier.bounding.hidden import Ends
from verifier.output import unseen
from verifier.proofs.attest import Attested
from verifier.proofs.hidden import intervals, root_bounds
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.ledger import Ledger, parted
from verifier.proofs.log import Note, Rooted, Written
from verifier.proofs.merges import merges
from verifier.proofs.notes import ProofNotes, improvements
from verifier.proofs.signs import SignScribe, closing
from verifier.proofs.stream import Pieces, SetTable, chosen
from verifier.property.problem import Problem
from verifier.search.journal import Event, Improved, Listener, Settled

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

    def __init__(
        self, problem: Problem, kinds: int, scribe: type[SignScribe] = SignScribe, ledger: Ledger | None = None
    ) -> None:
        """With a ledger that knows an earlier run, it goes on from there."""
        self._problem, self._kinds = problem, kinds
        self._ledger, self._notes = ledger or Ledger(), ProofNotes(problem, scribe)

    # ------------------------------------------------------------ listening

    def note(self, event: Event) -> list[Note] | None:
        if isinstance(event, Settled):
            self.settled(event.evidence())
        return self._notes.note(event)

    def envoy(self) -> ProofNotes:
        return self._notes.envoy()

    def counted(self) -> tuple[int, str]:
        """How far the notes count now.  Guarantee: they are on disk.  Raises OSError."""
        return self._ledger.counted()

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
                notes = improvements(replace(own, box=box, found=replace(own.found, state=state)))
                self._ledger.keep(replace(note, root=True) for note in notes)

    def settled(self, found: Any) -> None:
        """Clauses that the bounds of the root close: by intervals, or by slopes that need not be written down.

        A run that goes on from another one has the notes of that one on them, and does not know how they were closed.
        """
        assert isinstance(found, ClauseBounds)
        if self._ledger.root is not None:
            return
        lambdas, closings = Lambdas(self._problem), dict[int, Written]()
        for clause in torch.nonzero(closes(found.lower)).flatten().tolist():
            row, linear = found.best[clause]
            (own,) = lambdas.words([clause], np.eye(len(self._problem.rows[clause].c))[row : row + 1])
            closings[clause] = closing(clause, own, _by_default(self._problem, linear))
        self._ledger.keep([Rooted(closings, tuple(found.regions))])

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
        return ProofFile(path, place.stat().st_size, _sha256(place), self._ledger.leaves + len(self._root.closings))

    @property
    def _root(self) -> Rooted:
        return self._ledger.root or Rooted({}, ())

    def _stream(self, write: Any) -> None:
        table, count = SetTable(), len(self._problem.rows)
        for box, clauses in enumerate(self._problem.clauses_of):
            if clauses:
                write(table.written(Pieces().members(chosen(count, clauses)).done()))
                for pieces in self._tree(box, clauses):
                    write(table.written(pieces))

    def _tree(self, box: int, clauses: Sequence[int]) -> Iterator[Written]:
        """The proof of all clauses of one box."""
        default, root = root_bounds(self._problem.network, self._kinds), self._root
        left = [clause for clause in clauses if clause not in root.closings]
        count, subtrees = len(self._problem.rows), self._ledger.subtrees(left, clauses) if left else []
        by_signs = bool(left) and not self._ledger.is_cut(subtrees[0][1])
        recalls = bool(left) and not (by_signs and box in root.boxes)
        yield default
        yield from self._ledger.rooted(box, recalls)
        for clause in clauses:
            if clause in root.closings:
                yield root.closings[clause]
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


def _by_default(problem: Problem, linear: bool) -> Written:
    """A witness without numbers: CROWN's slopes, or the intervals of the last layer."""
    return intervals(0 if linear else len(problem.network.groups))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
