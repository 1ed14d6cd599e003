"""Who listens to a search: every bounded domain and every proof that closes one passes through here."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.bounding.solvers.solver import Proof
from verifier.search.signs.root import Batch
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Bounded:
    """A batch of domains that were bounded together.

    `kinks` lists where each was split off its parent, -1 where nothing was; the signs stand in the batch.  The parents
    of the whole problem are -1.
    """

    batch: Batch
    number: Int[Tensor, " D"]
    parent: Int[Tensor, " D"]
    kinks: Int[Tensor, "D levels"]
    lower: Float[Tensor, " D"]
    closed: Bool[Tensor, " D"]
    tier: str


class Journal:
    """Hears everything and keeps nothing; it numbers the domains of all searches that it listens to."""

    def __init__(self) -> None:
        self._numbered = 0

    def numbers(self, count: int) -> range:
        """Numbers that no domain has yet."""
        self._numbered += count
        return range(self._numbered - count, self._numbered)

    def bounded(self, found: Bounded) -> None:
        """Domains were bounded; some of them are closed."""

    def closed(self, batch: Batch, proof: Proof) -> None:
        """These domains are closed, by this proof: the one place where certificates can be written from."""
