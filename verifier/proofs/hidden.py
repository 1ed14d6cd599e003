"""Bounds of hidden neurons that need no numbers in a proof: the nodes by which they are computed again."""

from __future__ import annotations

import numpy as np

from verifier.network.network import Affine, Network
from verifier.proofs.encode import has_sum
from verifier.proofs.log import Written
from verifier.proofs.stream import Node, Pieces

ADAPTIVE = 1
"""The kind of bounds that are CROWN's."""

PLAIN = 8
"""The flag of a group whose multipliers are all zero: intervals."""


def root_bounds(net: Network, kinds: int) -> Written:
    """Bounds of all hidden neurons as a search begins with them.

    The checker adds up the absolute values of maps that are added, and multiplies those of maps that follow each other.
    Where these cancel, as differences in a MaxPool do, one step back through the sum itself gives its intervals; what
    builds upon them follows group by group.  Products matter where a group reads the input only: there the search takes
    a step back as well.
    """
    cancels = [any(has_sum(term) for _, term in group.terms) or _product_of_input(group) for group in net.groups]
    if not kinds & ADAPTIVE or not any(cancels):
        return Pieces().numbers(Node.DEFAULT, 1, kinds).done()
    out = Pieces().numbers(Node.DEFAULT, 1, 0)
    for k, group in enumerate(net.groups, 1):
        every = np.ones(group.size, dtype=bool)
        for plain in (k - 1, 0):
            out.numbers(Node.IMPROVE, k).members(every).members(every).add(intervals(plain))
    return out.done()


def _product_of_input(group: Affine) -> bool:
    """Whether a group reads nothing but the input, by maps whose products may cancel."""
    return not group.exact and all(source == 0 for source, _ in group.terms)


def intervals(groups: int) -> Written:
    """A witness that takes the boxes of what a layer reads, after so many groups."""
    out = Pieces().numbers(1, groups)
    for k in range(groups, 0, -1):
        out.numbers(k, PLAIN)
    return out.done()
