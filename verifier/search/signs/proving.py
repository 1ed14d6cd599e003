"""What counts as a proof of the bounds that a tier has found: `certify` closes domains in no other way by bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from verifier.bounding.solvers.solver import Proof
from verifier.search.signs.root import Batch
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Proved:
    """Rigorous bounds of some domains of a batch (`rows`), and what proves them."""

    rows: Int[Tensor, " d"]
    lower: Float[Tensor, " d"]
    proof: Proof


class Prover(ABC):
    """Evaluates what was found in float64."""

    @abstractmethod
    def proved(self, found: Proof, batch: Batch) -> Iterable[Proved]:
        """Every domain of the batch, once."""


@dataclass(frozen=True)
class AsFound(Prover):
    """The variables of the search, as they are."""

    def proved(self, found: Proof, batch: Batch) -> Iterable[Proved]:
        rows = torch.arange(len(batch), device=batch.clause.device)
        yield Proved(rows, found.lower(batch.task(torch.float64))[:, 0], found)
