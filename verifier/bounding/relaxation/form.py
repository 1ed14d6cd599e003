"""Affine forms: vectors whose entries share symbols, and what rounding costs in either precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class AffineForm:
    """The values of one vector in D boxes.  `radius` is at least the sum of |spread| over all symbols.

    Symbols are numbered alike in all forms of a network; a form leaves out those at the end that it does not use.
    """

    centre: Float[Tensor, "D n"]
    spread: Float[Tensor, "g D n"]
    radius: Float[Tensor, "D n"]
    error: Float[Tensor, "D n"]

    @classmethod
    def of_box(
        cls,
        lower: Float[Tensor, "D n"],
        upper: Float[Tensor, "D n"],
        dtype: torch.dtype,
        moving: Int[Tensor, " m"] | None = None,
    ) -> AffineForm:
        """One symbol per entry, or only for those that are named; the others are intervals, which should be narrow.

        The box may be given in a higher precision than that of the form.
        """
        centre, radius = middle_of(lower, upper, dtype)
        if moving is None:
            spread = torch.diag_embed(radius).transpose(0, 1).contiguous()
            return cls(centre, spread, radius, torch.zeros_like(radius))
        taken = torch.zeros_like(radius).index_copy_(1, moving, radius[:, moving])
        spread = centre.new_zeros(len(moving), *centre.shape)
        spread.scatter_(2, moving.view(-1, 1, 1).expand(-1, len(centre), 1), radius[:, moving].T.unsqueeze(-1))
        return cls(centre, spread, taken, radius - taken)

    @classmethod
    def of_interval(cls, lower: Float[Tensor, "D n"], upper: Float[Tensor, "D n"], dtype: torch.dtype) -> AffineForm:
        """No symbol at all: every entry on its own."""
        centre, radius = middle_of(lower, upper, dtype)
        return cls(centre, centre.new_zeros(0, *centre.shape), torch.zeros_like(radius), radius)

    def ends(self) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
        """Bounds of every entry, rounded outward."""
        u = unit_roundoff(self.centre.dtype)
        reach = (self.radius + self.error) * (1 + 8 * u) + 4 * u * self.centre.abs()
        return self.centre - reach, self.centre + reach

    def of_boxes(self, boxes: Int[Tensor, " P"]) -> BoxForm:
        """The form in some of the boxes, in float64."""
        spread = self.spread.transpose(0, 1)[boxes].to(torch.float64)
        centre, radius, error = (x[boxes].to(torch.float64) for x in (self.centre, self.radius, self.error))
        return BoxForm(centre, spread, radius, error)

    def select(self, rows: Int[Tensor, " d"]) -> AffineForm:
        """Some of the boxes."""
        return AffineForm(self.centre[rows], self.spread[:, rows], self.radius[rows], self.error[rows])

    def parts(self, count: int) -> tuple[AffineForm, ...]:
        """The entries in so many parts of equal size, one after the other."""
        if count == 1:
            return (self,)
        chunks = (x.chunk(count, dim=-1) for x in (self.centre, self.spread, self.radius, self.error))
        return tuple(AffineForm(*part) for part in zip(*chunks, strict=True))


@dataclass(frozen=True, eq=False)
class BoxForm:
    """The same of single boxes: their axis comes before that of the symbols."""

    centre: Float[Tensor, "P n"]
    spread: Float[Tensor, "P g n"]
    radius: Float[Tensor, "P n"]
    error: Float[Tensor, "P n"]

    def halves(self) -> tuple[BoxForm, BoxForm]:
        """The first half of the entries, and the second one."""
        chunks = [x.chunk(2, dim=-1) for x in (self.centre, self.spread, self.radius, self.error)]
        return BoxForm(*(chunk[0] for chunk in chunks)), BoxForm(*(chunk[1] for chunk in chunks))


def growth(depth: int, dtype: torch.dtype) -> float:
    """Higham's gamma_n for any precision, enlarged because the magnitudes that it multiplies are rounded as well.

    Infinite where the analysis does not hold.
    """
    n_u = depth * unit_roundoff(dtype)
    gamma = n_u / (1.0 - n_u) if n_u < 0.05 else float("inf")
    return gamma / (1.0 - gamma) ** 3 if gamma < 0.1 else float("inf")


def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def middle_of(
    lower: Float[Tensor, "D n"], upper: Float[Tensor, "D n"], dtype: torch.dtype
) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
    """A centre and a radius that reach both ends, in the given precision."""
    info = torch.finfo(dtype)
    centre = (lower / 2 + upper / 2).to(dtype)
    exact = centre.to(lower.dtype)
    radius = torch.maximum(upper - exact, exact - lower).to(dtype)
    inexact = (exact != lower) | (exact != upper)
    return centre, radius * (1 + 4 * info.eps) + torch.where(inexact, info.tiny**0.75, 0.0)
