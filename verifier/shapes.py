"""Axis letters and tensor aliases: one letter, one meaning, everywhere.

| letter | axis |
|---|---|
| `D` | subproblems (boxes, later domains of the search) |
| `S` | objectives of one subproblem |
| `n0` | network inputs |
| `n_k` | neurons of ReLU group k; `n` where the group does not matter |
| `m` | rows of a clause |
| `B` | points that are evaluated together |

A leading `*batch` stands for any number of batch axes.  The annotations are checked in the tests only.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Float64, Int, Int8, UInt8
from torch import Tensor

__all__ = ["Bool", "Float", "Float64", "Int", "Int8", "Tensor", "UInt8"]
