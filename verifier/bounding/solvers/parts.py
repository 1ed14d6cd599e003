"""Objectives bound in parts, when memory does not hold all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from verifier.bounding.core.base import Objective, Proof, Region, Until
from verifier.shapes import Float, Tensor


def in_parts(
    region: Region, objective: Objective, until: Until, bytes_each: int, warm: Proof | None
) -> Iterator[tuple[Objective, Until, Proof | None]]:
    """Consecutive parts of an objective with their states, if one objective in one region takes so many bytes.

    Whoever watches hears of all objectives each time, with -inf for those whose turn has not come.
    """
    chunk = until.chunk(bytes_each * region.count)
    if chunk >= objective.count:
        yield objective, until, warm
        return
    known = region.lower.new_full((region.count, objective.count), -torch.inf)
    for start in range(0, objective.count, chunk):
        stop = min(start + chunk, objective.count)
        state = None if warm is None else warm.part(start, stop)
        yield objective.part(start, stop), _listening(until, known, start, stop), state


def _listening(until: Until, known: Float[Tensor, "D S"], start: int, stop: int) -> Until:
    """`until` for one part: what is heard goes to its place among all that is known."""
    watch = until.watch
    if watch is None:
        return until

    def hear(lower: Float[Tensor, "D s"]) -> None:
        if len(lower) < len(known):  # of some regions only, the others have left
            return
        known[:, start:stop] = lower
        watch(known.clone())

    return replace(until, watch=hear)
