"""What the bounds of whole boxes lose at each hidden neuron: where better bounds of it would be worth most."""

from __future__ import annotations

from functools import partial

import torch

from verifier.branching.base import View, nothing_tried
from verifier.search.signs.root import Root
from verifier.search.tiers import Climbed
from verifier.shapes import Float, Tensor


def losses(root: Root, whole: Climbed) -> list[list[Float[Tensor, " _"]]]:
    """For each box and group: what the relaxation of every neuron costs the bounds of the clauses that are open there.

    requires: `whole` are the bounds of all clauses on their whole boxes
    """
    trace = whole.retrace(slice(None))
    view = View(whole.sweep, whole.objective, trace, nothing_tried)
    left = (~(whole.lower > 0)).float()
    found = []
    for k, neurons in enumerate(whole.sweep.neurons):
        cost, _ = neurons.losses(trace.coefficients[k], trace.lines[k], partial(view.at, k))
        each = cost.new_zeros(root.region.count, root.net.groups[k].size)
        cost = torch.zeros_like(each[:, neurons.index]).index_add_(0, root.box, cost.nan_to_num(0.0) * left[:, None])
        found.append(each.index_copy_(1, neurons.index, cost))
    return [[group[box] for group in found] for box in range(root.region.count)]
