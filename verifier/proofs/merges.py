"""Merged neurons as bytes (docs/proofs.md, `merged.bin`): what became of the neurons of the file, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from verifier.network.merge import Classes, LayerMerge
from verifier.proofs.stream import Pieces, SetTable

CONSTANT = 0


def merges(layers: Sequence[LayerMerge]) -> bytes:
    """What is written of a network that was merged."""
    *groups, output = layers
    out = Pieces()
    for layer in groups:
        _group(out, layer)
    return SetTable().written(out.numbers(int(output.multiplied)).done())


def _group(out: Pieces, layer: LayerMerge) -> None:
    out.numbers(int(layer.multiplied)).members((~layer.classes.alone).numpy())
    out.numbers(*_codes(layer.classes)).members(layer.kept.numpy())


def _codes(classes: Classes) -> Iterator[int]:
    """Of those who do not stand for themselves: constant, or the neuron that they repeat or mirror."""
    for i in torch.nonzero(~classes.alone).flatten().tolist():
        standing = int(classes.standing[i])
        yield CONSTANT if standing < 0 else 1 + 2 * standing + int(classes.mirrored[i])
