"""Signs that a row of a clause forces, found in rational arithmetic.

Let a row be r.x + e <= 0 over outputs x >= 0 of groups, with r >= 0 and e >= 0.  No summand is negative, so all of them
vanish: wherever r_i > 0 the output x_i is zero, which means t_i <= 0.  Points at which this is not so are not unsafe.
"""

from __future__ import annotations

import numpy as np

from .maps import Array
from .network import Network
from .stream import Rejected
from .vnnlib import Clause


def blocked(net: Network, clause: Clause, row: int) -> dict[int, Array]:
    """The neurons of each group that block wherever a row of a clause holds.  Raises Rejected if it forces nothing."""
    output = net.layers[-1]
    if any(chain.roundings for chain in output.chains):
        raise Rejected("the output has numbers that are no rationals")
    a, b, c = (values[row] for values in clause.exact)
    r = {0: b}
    for j, part in output.exact.transpose(a[None]):
        r[j] = r[j] + part[0] if j in r else part[0]
    constant = (a * output.exact.bias).sum() - c
    at_input = r.pop(0)
    if (at_input != 0).any() or any((part < 0).any() for part in r.values()) or not constant >= 0:
        raise Rejected(f"row {row} forces no signs")
    return {j: np.array(part > 0, np.bool_) for j, part in r.items()}
