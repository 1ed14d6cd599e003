"""The function that a network ends with: properties that only compare outputs need none that keeps their order."""

from __future__ import annotations

import torch

from verifier.network.entries import entries_of
from verifier.network.lowering.expression import Expression
from verifier.network.lowering.tracing import Lowering, Normalisation
from verifier.network.merge import pruned
from verifier.network.network import Head, Network

INCREASING = frozenset({"Sigmoid", "Tanh"})
"""Functions of one number that are left out where a property allows it."""


def head_of(lowering: Lowering, output: Expression, input_shape: tuple[int, ...]) -> Head | None:
    """The head of a network with this output: one group, of which the output takes entries as they are."""
    if len(output.terms) != 1 or bool(output.bias.any()) or bool(output.error.any()):
        return None
    ((source, term),) = output.terms.items()
    known = _known(lowering, source)
    entries = entries_of(term) if known is not None else None
    if known is None or entries is None or not torch.equal(entries.rows, torch.arange(output.size)):
        return None
    if not bool((entries.values == known.sign).all()):
        return None
    before = known.value.taken(entries.columns).reshaped(output.shape)
    if before.is_constant:
        return None
    groups = tuple(lowering.groups[: source - 1])  # not the last of the head, which nothing may read any more
    bare = Network(input_shape, groups, lowering.affine("output", before), lowering.within)
    return Head(known.operator, pruned(bare), known.members[entries.columns])


def _known(lowering: Lowering, source: int) -> Normalisation | None:
    """What a group was made of, if it is one of those that may be left out at the end."""
    if source == 0 or source in lowering.normalised:
        return lowering.normalised.get(source)
    group = lowering.groups[source - 1]
    if group.function.name not in INCREASING:
        return None
    value = Expression(group.shape, dict(group.terms), group.bias, group.bias_error)
    return Normalisation(group.function.name, value, torch.arange(group.size), 1)
