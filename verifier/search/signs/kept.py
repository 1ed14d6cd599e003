"""Domains of the sign tree as a checkpoint has them: a hundredth of what they take in memory, or a tenth.

Signs take two bits.  Of the scores only the best are kept: a split looks at no others, and which kinks may be split
follows from signs and bounds.  Variables only save time, so those of the worst domains are kept while there is room.
Masks of cuts are not kept; children begin with those of the whole boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.core.state import State
from verifier.shapes import Float, Int, Int8, Tensor, UInt8

BEST = 16
"""Scores of each domain: no split looks at more kinks."""

PER_BYTE = 4
"""Signs in one byte."""


@dataclass(frozen=True, eq=False)
class KeptSigns(State):
    """Sign domains, the worst bound first; those beyond the rows of `variables` have lost theirs."""

    number: Int[Tensor, " D"]
    clause: Int[Tensor, " D"]
    lower: Float[Tensor, " D"]
    depth: Int[Tensor, " D"]
    tier: Int8[Tensor, " D"]
    signs: UInt8[Tensor, "D bytes"]
    rise: Float[Tensor, " D"]
    variables: Float[Tensor, "some V"]
    best: Int[Tensor, "D most"]  # kinks
    scores: Float[Tensor, "D most"]
    bounds: Float[Tensor, "D B"]
    shares: Float[Tensor, "D P"]

    def __len__(self) -> int:
        return len(self.number)


def packed(signs: Int8[Tensor, "D A"]) -> UInt8[Tensor, "D bytes"]:
    """Four signs in a byte."""
    count, places = signs.shape[1], -(-signs.shape[1] // PER_BYTE)
    codes = torch.zeros(len(signs), places * PER_BYTE, dtype=torch.uint8)
    codes[:, :count] = (signs + 1).to(torch.uint8)
    four = codes.view(len(signs), places, PER_BYTE)
    return four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6


def unpacked(code: UInt8[Tensor, "D bytes"], count: int) -> Int8[Tensor, "D A"]:
    """The signs again.  Require: `count` of them were packed."""
    four = torch.stack([code >> shift & 3 for shift in (0, 2, 4, 6)], dim=2)
    return four.flatten(1)[:, :count].to(torch.int8) - 1
