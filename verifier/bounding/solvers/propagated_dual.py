"""The propagated Anderson bound as a function of slopes, split multipliers and the shares of cuts.

With lam the coefficient of x, the derivative by the share of a cut is min(lam, 0) times what a unit of the share adds
to the upper face at the forward point.  So one sweep back and one forward give value and supergradient, no autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch

from verifier.bounding.core.base import Objective
from verifier.bounding.core.sweep import Choice, Route, Sweep
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.cuts.faces import CutFaces, Face
from verifier.bounding.cuts.masks import CutMasks, Form, Geometry
from verifier.bounding.solvers.alpha_crown import FaceDual, SlopeDual, SlopePoint
from verifier.shapes import Float, Tensor


class Block(NamedTuple):
    """The shares of one cut at the kinks of one group; both count from 0."""

    cut: int
    group: int
    size: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the shares are: cut after cut, each at the kinks of the groups that take it."""

    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def split(self, shares: Float[Tensor, "D S _"]) -> list[tuple[Block, Float[Tensor, "D S _"]]]:
        """Every block with its part of the shares, a view."""
        parts = shares.split([block.size for block in self.blocks], dim=-1)
        return list(zip(self.blocks, parts, strict=True))

    def in_order(self, parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """What belongs to the cuts of each group, in the order of the variables."""
        left = [iter(group) for group in parts]
        return [next(left[block.group]) for block in self.blocks]


@dataclass(frozen=True, eq=False)
class PropagatedDual(FaceDual):
    """The variables of `SlopeDual`, then for every cut its shares at the kinks of all groups that take it."""

    faces: tuple[CutFaces | None, ...]
    layout: Layout
    share_scale: float = 2.0

    @classmethod
    def of(cls, sweep: Sweep, objective: Objective, masks: CutMasks) -> PropagatedDual:
        """Require: the kinks of the sweep are those that the masks were made for."""

        @cache  # several cuts of a group have the same: it may be large
        def geometry(k: int, form: Form) -> Geometry | None:
            return form.geometry(sweep, k + 1)

        cuts: list[list[Cut]] = [[] for _ in sweep.kinks]
        blocks = []
        for c, mask in enumerate(masks.cuts):
            for k, bits in enumerate(mask):
                common = None if bits is None else geometry(k, bits.form)
                if bits is not None and common is not None:
                    cuts[k].append(bits.cut(common))
                    blocks.append(Block(c, k, sweep.kinks[k].count))
        faces: list[CutFaces | None] = []
        for k, (found, kinks) in enumerate(zip(cuts, sweep.kinks, strict=True)):
            slack = None if sweep.slacks is None else sweep.slacks[k]
            faces.append(CutFaces.of(found, kinks, sweep.net.layers[k].bias, slack) if found else None)
        return cls(sweep, objective, tuple(faces), Layout(tuple(blocks)))

    @property
    def slopes(self) -> SlopeDual:
        return SlopeDual(self.sweep, self.objective)

    @property
    def variables(self) -> int:
        return self.slopes.variables + self.layout.size

    def start(self) -> Float[Tensor, "D S V"]:
        """CROWN's slopes; split multipliers and shares are zero."""
        return torch.nn.functional.pad(self.slopes.start(), (0, self.layout.size))

    def shares(self, point: Float[Tensor, "D S V"]) -> list[list[Float[Tensor, "D S _"]]]:
        """The shares of each group, cut by cut: views."""
        found: list[list[Tensor]] = [[] for _ in self.faces]
        for block, part in self.layout.split(point[..., self.slopes.variables :]):
            found[block.group].append(part)
        return found

    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        slopes = self.slopes
        plain = slopes.choices(point[..., : slopes.variables])
        return tuple(
            choice if face is None else replace(choice, face=face.face(shares))
            for choice, face, shares in zip(plain, self.faces, self.shares(point), strict=True)
        )

    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        found: list[list[Tensor]] = []
        for choice, lam, gains in zip(at.choices, at.trace.coefficients, route.gains, strict=True):
            face = _face(choice)
            if face is None:
                found.append([])
            elif lam is None or gains is None:
                found.append([torch.zeros_like(share) for share in face.shares])
            else:
                negative = lam.clamp(max=0)
                found.append([negative * gain for gain in gains])
                face.of.project_direction(found[-1], face.shares)
        return torch.cat([self.slopes.gains(at, route), *self.layout.in_order(found)], dim=-1)

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        plain = self.slopes.variables
        self.slopes.project(point[..., :plain])
        point[..., plain:].clamp_(min=0.0)
        for face, shares in zip(self.faces, self.shares(point), strict=True):
            if face is not None:
                face.project(shares)

    def step_scale(self) -> Float[Tensor, " V"]:
        scale = self.sweep.region.lower.new_full((self.variables,), self.share_scale)
        scale[: self.slopes.variables] = self.slopes.step_scale()
        return scale

    def uses(self, point: Float[Tensor, "D S V"], at: SlopePoint) -> Float[Tensor, "D C"]:
        """How much the bound leans on each cut: its multipliers, summed over all kinks."""
        count = max((block.cut for block in self.layout.blocks), default=-1) + 1
        found = point.new_zeros(point.shape[0], count)
        faces = [_face(choice) for choice in at.choices]
        weights = [() if face is None else face.weights for face in faces]
        for block, weight in zip(self.layout.blocks, self.layout.in_order(weights), strict=True):
            lam = at.trace.coefficients[block.group]
            if lam is not None:
                found[:, block.cut] -= (lam.clamp(max=0) * weight).sum(dim=(1, 2))
        return found


def _face(choice: Choice) -> Face | None:
    """The upper faces that cuts have bent."""
    assert isinstance(choice.face, Face | None)
    return choice.face
