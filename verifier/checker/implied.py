"""Signs that a row of a clause forces, found in rational arithmetic.

Let a row be r.x + e <= 0 over outputs x >= 0 of groups, with r >= 0 and e >= 0.  No summand is negative, so all of them
vanish: wherever r_i > 0 the output x_i is zero, which means t_i <= 0.  Points at which this is not so are not unsafe.
"""

from __future__ import annotations

from typing import Any

from .network import Network
from .rationals import Array, Rationals
from .stream import Rejected
from .vnnlib import Clause


def blocked(net: Network, clause: Clause, row: int) -> dict[int, Array]:
    """The neurons of each group that block wherever a row of a clause holds.  Raises Rejected if it forces nothing."""
    output = net.layers[-1]
    if any(chain.roundings for chain in output.chains):
        raise Rejected("the output has numbers that are no rationals")
    a, b, c = (Rationals.of(values[row : row + 1]) for values in clause.exact)
    r: dict[int, Any] = {0: b}
    for j, part in output.transpose(a):
        r[j] = r[j] + part if j in r else part
    if any(not net.layers[j - 1].function.bends_at_zero for j in r if j):
        raise Rejected(f"row {row} reads other functions than ReLUs, which force no signs")
    constant = (a * output.exact_bias).sum(axis=1) - c
    at_input = r.pop(0)
    if (at_input != 0).any() or any((part < 0).any() for part in r.values()) or not (constant >= 0).all():
        raise Rejected(f"row {row} forces no signs")
    return {j: (part > 0)[0] for j, part in r.items()}
