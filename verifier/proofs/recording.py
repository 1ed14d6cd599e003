"""A proof that one run is to write: what the search may use while it is wanted, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.closing import closes
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.bounding.solvers.crown import Slope
from verifier.checker.check import refusal
from verifier.errors import InputError
from verifier.proofs.attest import CAUTION, AsWritten, BoundsAsWritten
from verifier.proofs.boxes import CARE, SMOOTH_CARE
from verifier.proofs.functions import unknown
from verifier.proofs.ledger import Incomplete, Ledger
from verifier.proofs.signs import SignScribe
from verifier.proofs.witness import CONVERSIONS
from verifier.proofs.writer import ProofFile, ProofWriter
from verifier.property.problem import Problem
from verifier.search.problem import ProblemSearch
from verifier.search.signs.space import Policy

KINDS = {None: 0, Slope.ADAPTIVE: 1, Slope.PARALLEL: 8}
"""How the checker computes the bounds of hidden neurons that a search begins with."""

EVERY = 16
"""Added to it: not only of ambiguous neurons."""


class Recording:
    """Listens to a run and writes its proof if it ends in `unsat`."""

    def __init__(self, path: str, hidden: GroupBounds, policy: Policy, scribe: type[SignScribe] = SignScribe) -> None:
        """Raises InputError, in one sentence, for settings whose bounds have no form in a proof."""
        first = hidden.first
        if not isinstance(first, RootBounds):
            raise InputError("`bounding.intermediate` bounds neurons in a way that --proof cannot write down", path)
        for tier in policy.ladder.tiers:
            if tier.solver.kind not in CONVERSIONS:
                raise InputError(f"bounds of the tier '{tier.name}' cannot be written down by --proof", path)
        self.path, self._kinds = path, KINDS[first.slope] + (EVERY if first.passing_bytes else 0)
        self._hidden, self._scribe = hidden, scribe
        self._writer: ProofWriter | None = None
        self._smooth = False  # whether the network has other functions than ReLUs

    def begin(
        self, problem: Problem, network: str | None = None, prop: str | None = None, ledger: Ledger | None = None
    ) -> None:
        """The instance is loaded.  Raises InputError if it has rows, or groups, that no proof can hold.

        The checker has readers of its own, so it is asked beforehand whether it can read the files.  The ledger may
        know what an earlier run has told.
        """
        if problem.property.joint is not None:
            raise InputError(
                "the property speaks of several networks, of equal inputs or of products; a proof speaks of one "
                "network and of linear conditions, so run without --proof",
                self.path,
            )
        missing = unknown(problem.network)
        if missing is not None:
            raise InputError(f"the network has the function {missing}, which --proof cannot write down", self.path)
        self._smooth = not problem.network.piecewise_linear
        declares = problem.property.variables is not None  # all of VNN-LIB 1.0 can be read, by both
        why = None if network is None else refusal(network, problem.network.n_in, prop if declares else None)
        if why is not None:
            raise InputError(f"no proof could be checked, because the checker cannot read the files: {why}", self.path)
        self._writer = ProofWriter(problem, self._kinds, self._scribe, ledger)

    @property
    def writer(self) -> ProofWriter:
        assert self._writer is not None, "the instance was not loaded"
        return self._writer

    @property
    def hidden(self) -> GroupBounds:
        """How the hidden neurons of whole boxes get their bounds."""
        return self._hidden.told_of(self.writer.improved, BoundsAsWritten)

    def careful(self, found: ClauseBounds) -> ClauseBounds:
        """The bounds of the root, but clauses that they close by less than whoever checks them may need are open."""
        errors = [found.error.get(clause, 0.0) for clause in range(len(found.lower))]
        error = torch.tensor(errors, dtype=found.lower.dtype, device=found.lower.device)
        slim = closes(found.lower) & ~closes(found.lower - CAUTION * error)
        return replace(found, lower=torch.where(slim, 0.0, found.lower))

    def settled(self, found: ClauseBounds) -> None:
        """The bounds of the root have closed all clauses."""
        self.writer.settled(found)

    def provable(self, search: ProblemSearch) -> ProblemSearch:
        """The search with those means only whose closings can be written down."""
        tightening = search.policy.tightening.after_points() if self._smooth else search.policy.tightening
        policy = replace(search.policy, prover=AsWritten(), tightening=tightening.repeatable())
        sharpening = search.sharpening
        if sharpening is not None:
            sharpening = replace(sharpening, bounder=BoundsAsWritten(sharpening.bounder), trees=None)
        return replace(
            search,
            policy=policy,
            intermediate=self._hidden.first,
            sharpening=sharpening,
            inputs=replace(search.inputs, care=SMOOTH_CARE if self._smooth else CARE),
        )

    def written(self, header: dict[str, Any]) -> ProofFile | str:
        """Writes the file; where that does not succeed, a sentence that says why."""
        try:
            return self.writer.write(self.path, header)
        except (Incomplete, OSError) as error:
            return f"no proof was written: {error}"
