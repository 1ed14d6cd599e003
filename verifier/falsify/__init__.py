"""The search for counterexamples: one attack per file.

In goes a `Target`, the instance under attack: a copy of the network in its own precision, the boxes rounded inward, all
clauses as one table, and the judges.  Out comes a counterexample that the original network confirms when it is run
again, and real arithmetic as well; or nothing, which says nothing.

    target   the instance under attack; `Target.replay` is the only way from a point to a counterexample
    real     whether a counterexample holds in real arithmetic, too
    base     what every attack offers, and how several are combined
    start    which clauses look promising, and from which points of their boxes to begin
    pgd      projected gradient descent: the attacks `quick` and `thorough`

A further attack is a file with a `Falsifier` in it, and a function that builds it of its options and the seed, which
`@ATTACKS.register("name", ItsOptions)` decorates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.registry import Registry

if TYPE_CHECKING:
    from verifier.falsify.base import Falsifier

ATTACKS: Registry[Falsifier] = Registry("ATTACKS", "attack", __name__)
"""Attacks for `falsify.attacks`."""
