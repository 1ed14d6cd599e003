"""Domains of signs in proofs: what closes them, as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from verifier.proofs.attest import Attested
from verifier.proofs.encode import Encoder, Wording
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.log import Note, Said, Written
from verifier.proofs.stream import Node, Piece, varint
from verifier.proofs.witness import Precision
from verifier.search.journal import Split
from verifier.search.signs.root import Batch

CLOSE = varint(Node.CLOSE)


class SignScribe:
    """Says what closed domains."""

    def __init__(self, lambdas: Lambdas) -> None:
        self._lambdas = lambdas

    def born(self, event: Split) -> None:
        """Domains that may be closed later on."""

    def closed(self, numbers: Sequence[int], batch: Batch, proof: Attested) -> Iterator[Note]:
        """Domains that a witness closes."""
        clauses = batch.root.numbers[batch.clause].tolist()
        for some, wording in self._worded(clauses, proof.precision):
            places = torch.tensor(some, device=batch.clause.device)
            part = proof.select(places) if len(some) < len(numbers) else proof
            encoder = Encoder(part.witness, part.sweep, wording, part.rows)
            weights = part.witness.weights
            rows = np.ones((len(some), 1)) if weights is None else encoder.flat(weights)
            lambdas = self._lambdas.words([clauses[d] for d in some], rows)
            for d, own, witness in zip(some, lambdas, encoder.encoded(), strict=True):
                yield Said(numbers[d], closing(clauses[d], own, witness), last=True)

    def _worded(self, clauses: Sequence[int], precision: Precision) -> Iterator[tuple[list[int], Wording]]:
        """Places of clauses whose objectives a proof scales alike, and how their witnesses are to be written."""
        units = [self._lambdas.unit(clause) for clause in clauses]
        for unit in sorted(set(units)):
            yield [d for d, own in enumerate(units) if own == unit], Wording(precision, unit)


def closing(clause: int, lambdas: bytes, witness: Sequence[Piece]) -> Written:
    """The node that closes a clause."""
    return [CLOSE + varint(clause) + lambdas, *witness]
