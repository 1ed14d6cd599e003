"""Objectives bound in parts, when memory does not hold all of them at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from verifier.bounding.core.base import BounderT, Objective, Proof, Region, Watch, together
from verifier.shapes import Float, Tensor


def in_parts(
    bounder: BounderT, region: Region, objective: Objective, bytes_each: int, warm: Proof | None
) -> Iterator[tuple[BounderT, Objective, Proof | None]]:
    """Consecutive parts of an objective with their states, if one objective in one region takes so many bytes.

    Each comes with the bounder to be used for it: whoever watches hears of all objectives each time, with -inf for
    those whose turn has not come.
    """
    chunk = together(bytes_each * region.count, bounder.memory_bytes)
    if chunk >= objective.count:
        yield bounder, objective, warm
        return
    known = region.lower.new_full((region.count, objective.count), -torch.inf)
    for start in range(0, objective.count, chunk):
        stop = min(start + chunk, objective.count)
        state = None if warm is None else warm.part(start, stop)
        hear = None if bounder.watch is None else _part_of(bounder.watch, known, start, stop)
        yield bounder if hear is None else bounder.watched(hear), objective.part(start, stop), state


def _part_of(watch: Watch, known: Float[Tensor, "D S"], start: int, stop: int) -> Watch:
    """The listener for one part: what it hears goes to its place among all that is known."""

    def hear(lower: Float[Tensor, "D s"]) -> None:
        if len(lower) < len(known):  # of some regions only, the others have left
            return
        known[:, start:stop] = lower
        watch(known.clone())

    return hear
