"""Closing domains by what is written down: numbers are rounded first, and then have to suffice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.solvers.solver import Proof, Task
from verifier.network.network import Network
from verifier.proofs.witness import BYTE, PRECISIONS, Precision, Witness, parallel, rounded, witness_of
from verifier.search.signs.proving import Proved, Prover
from verifier.search.signs.root import Batch
from verifier.shapes import Float, Int, Tensor

CAUTION = 32.0
"""How many times its own rounding error a bound must be above zero: whoever checks it may count errors otherwise."""


@dataclass(frozen=True, eq=False)
class Attested(Proof):
    """A rounded witness, with the sweep that it is for; and those of its regions that are meant (None: all).

    Witnesses and sweeps are large, so that regions are only named.
    """

    witness: Witness
    sweep: Sweep
    precision: Precision
    rows: Int[Tensor, " D"] | None = None
    origin: Proof | None = None  # the state that the witness comes from

    kind = "attested"

    def found(self) -> Proof:
        """The state that the witnesses come from, of the regions that are meant."""
        assert self.origin is not None
        return self.origin if self.rows is None else self.origin.select(self.rows)

    def select(self, rows: Tensor | slice) -> Attested:
        every = torch.arange(self.sweep.region.count, device=self.sweep.region.lower.device)
        return replace(self, rows=(every if self.rows is None else self.rows)[rows])

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        return cautious(self.witness if self.rows is None else self.witness.select(self.rows), task)


def cautious(witness: Witness, task: Task) -> Float[Tensor, "D S"]:
    """The bound of a witness that is left if rounding errors are counted several times."""
    plane = witness.plane(task)
    return plane.lower if plane.error is None else plane.lower - CAUTION * plane.error


def attested(found: Proof, batch: Batch, precision: Precision) -> tuple[Float[Tensor, " D"], Attested]:
    """The bounds that a state gives once its numbers are rounded, and what is then to be written."""
    task = batch.task(torch.float64)
    witness = rounded(witness_of(found, task), task.sweep, precision)
    return cautious(witness, task)[:, 0], Attested(witness, task.sweep, precision, origin=found)


@dataclass(frozen=True)
class AsWritten(Prover):
    """Rounds the variables of the search as shortly as each domain allows.

    guarantees: the bound of every domain is that of the numbers which a proof would hold
    """

    def proved(self, found: Proof, batch: Batch) -> Iterable[Proved]:
        rows = torch.arange(len(batch), device=batch.clause.device)
        for precision in PRECISIONS:
            lower, proof = attested(found, batch, precision)
            done = closes(lower)
            if precision is PRECISIONS[-1]:
                done = torch.ones_like(done)
            yield Proved(rows[done], lower[done], proof.select(done))
            if bool(done.all()):
                return
            rows, batch, found = rows[~done], batch.select(~done), found.select(~done)


@dataclass(frozen=True)
class BoundsAsWritten(Bounder):
    """The bounds that another bounder's variables give once they are rounded: better ones could not be checked.

    requires:   networks in float64
    guarantees: rigorous bounds, each with the `Attested` witness that gives it.  Bounders without variables have
                chosen slopes beforehand; then Wong and Kolter's are taken
    """

    inner: Bounder

    @property
    def separately(self) -> bool:
        return True

    def learning(self) -> BoundsAsWritten:
        return replace(self, inner=self.inner.learning())

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        found = self.inner.bound(net, region, objective, until)
        task = Task(Sweep.prepare(net, region, objective.layer), objective)
        own = witness_of(found.state, task) if isinstance(found.state, Proof) else parallel(task)
        witness = rounded(own, task.sweep, BYTE)
        return Bound(cautious(witness, task), found.x0, Attested(witness, task.sweep, BYTE), found.iterations)
