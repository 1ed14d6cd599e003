"""Proofs without splits that nothing leans on.

Where the multipliers of a domain close what it was split off from as well, that is a leaf, and whatever else it was
split into is left out.  Each closing is tried without the last split: numbers are rounded first, and evaluated in
float64 with the same room for whoever checks it.  Where that succeeds, the split before it is next.

requires:   evidence with the state that it was found as; bounds of hidden neurons are those of the whole boxes
guarantees: a proof of the same clauses with at most as many leaves
source:     docs/proofs.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from verifier.bounding.core.closing import closes
from verifier.proofs.attest import Attested, attested
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.log import Covered, Note, Said
from verifier.proofs.signs import SignScribe
from verifier.search.journal import Place, Split
from verifier.search.signs.root import Batch

Target = tuple[int, tuple[Place, ...]]
"""A domain of the tree, or one between it and its children: where these differ from it, as far as that goes."""


class TrimmingScribe(SignScribe):
    """Says what closed domains, and what else it closes.

    What it knows of domains grows with their number, in every process.
    """

    def __init__(self, lambdas: Lambdas) -> None:
        super().__init__(lambdas)
        self._origins: dict[int, Target] = {}  # of all domains but the whole ones: the parent, and all places
        self._done: set[Target] = set()

    def born(self, event: Split) -> None:
        family = zip(event.number.tolist(), event.parent.tolist(), event.places(), strict=True)
        self._origins.update((n, (parent, tuple(places))) for n, parent, places in family if parent >= 0 and places)

    def closed(self, numbers: Sequence[int], batch: Batch, proof: Attested) -> Iterator[Note]:
        yield from super().closed(numbers, batch, proof)
        if batch.bounds is not None or proof.origin is None:
            return
        now = [self._origins.get(number) for number in numbers]
        while found := self._without_last(now, batch, proof):
            targets, batch, proof = found
            self._done.update(targets)
            for said in super().closed(range(len(targets)), batch, proof):
                assert isinstance(said, Said)
                number, places = targets[said.number]
                yield Covered(number, places, said.pieces) if places else replace(said, number=number)
            now = [target if target[1] else self._origins.get(target[0]) for target in targets]

    def _without_last(
        self, now: Sequence[Target | None], batch: Batch, proof: Attested
    ) -> tuple[list[Target], Batch, Attested] | None:
        """What is closed without the last split as well, each once; None if that is nothing."""
        first: dict[Target, int] = {}
        for row, target in enumerate(now):
            if target is not None and (above := (target[0], target[1][:-1])) not in self._done:
                first.setdefault(above, row)
        if not first:
            return None
        rows = torch.tensor(list(first.values()), device=batch.clause.device)
        last = [origin[1][-1] for row in first.values() if (origin := now[row]) is not None]
        looser = _freed(batch.select(rows), last)
        lower, found = attested(proof.select(rows).found(), looser, proof.precision)
        done = closes(lower)
        targets = [target for target, closed in zip(first, done.tolist(), strict=True) if closed]
        return (targets, looser.select(done), found.select(done)) if targets else None


def _freed(batch: Batch, places: Sequence[Place]) -> Batch:
    """The domains without the sign of one neuron each."""
    kinks = {tuple(place): kink for kink, place in enumerate(batch.root.places.tolist())}
    signs = batch.signs.clone()
    for row, (group, neuron, _) in enumerate(places):
        kink = kinks.get((group, neuron))
        if kink is not None:  # where bounds are sharper since, its sign is known anyway
            signs[row, kink] = 0
    return replace(batch, signs=signs)
