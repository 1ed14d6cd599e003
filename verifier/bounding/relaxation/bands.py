"""Bands: two parallel faces around a function, and the symbol that fills what is between them.

Whatever the slopes s, x - s . t lies in an interval over the bounds of t, and the form of x is s . t plus the middle of
that interval plus one symbol times its radius.

- ReLUs: s = h / (h - l), and 0 <= max(t, 0) - s t <= max(-s l, (1 - s) h).
- Functions of one number: the slope of the chord, which is best where the function is convex or concave, or the flat
  one if that leaves less.
- Products, with t = (p, q): the slopes are the centres of q and p, so that what is left is the product of two
  deviations, sum over g, h of eps_g eps_h P_g Q_h.  Its diagonal has a sign: eps_g^2 is between 0 and 1.  So it lies
  within radius_p radius_q - sum |P_g Q_g| / 2 of sum P_g Q_g / 2: a square of one symbol is never negative.  The
  corners of the box of (p, q) bound it as well, and the better end counts.
- The largest of some entries: x = t_j + max(0, t_i - t_j, ..) for the entry with the highest middle, where symbols that
  entries share cancel; or the flat band, if that leaves less.

requires:   the form of t, and bounds of t that enclose it too
guarantees: x - s . t is within `gap` of `offset` in the exact arithmetic of the given slopes; what is rounded in
            `offset + s . centre` is in `error`.  NaN or infinite where the function is not defined everywhere
source:     zonotopes with one error term per neuron (Singh et al. 2018); products of affine forms (Stolfi and de
            Figueiredo 1997)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.relaxation.form import AffineForm, growth, middle_of, unit_roundoff
from verifier.functions import Function, Largest
from verifier.functions.base import Scalar, slack
from verifier.functions.product import PRODUCT
from verifier.shapes import Bool, Float, Tensor

FEW = 12
"""Roundings of scalars around each long sum, generously."""

NARROW = 2.0**-30
"""Where an interval is smaller than this in relation to its middle, differences of values say nothing of slopes."""

Ends = tuple[Float[Tensor, "D n_hat"], Float[Tensor, "D n_hat"]]


@dataclass(frozen=True, eq=False)
class Band:
    """x is within gap + error of offset + slopes . t; `sizes` are the magnitudes of the slopes.

    `bent` marks neurons whose gap gets a symbol; all others have none.  `above` and `below` say how fast the upper and
    the lower face of a sweep depart from the function when the radius of t grows, times `rates` (1 if None), one for
    each argument; a gap grows with the power `degree` of the radius.
    """

    slopes: tuple[Float[Tensor, "D n"], ...]
    sizes: tuple[Float[Tensor, "D n"], ...]
    offset: Float[Tensor, "D n"]
    gap: Float[Tensor, "D n"]
    bent: Bool[Tensor, "D n"]
    above: Float[Tensor, "D n"]
    below: Float[Tensor, "D n"]
    rates: tuple[Float[Tensor, "D n"], ...] | None = None
    error: Float[Tensor, "D n"] | None = None
    degree: int = 1

    @property
    def sharp(self) -> bool:
        """Whether a gap is zero but for kinks: curves and products have one wherever something moves."""
        return self.error is None


def band_of(function: Function, form: AffineForm, bounds: Ends) -> Band:
    """The band of a group, given the form of its pre-activations and their bounds."""
    if function.is_relu:
        return relu_band(bounds)
    if function.is_product:
        return product_band(form, bounds)
    if isinstance(function, Largest):
        return largest_band(function, form, bounds)
    assert isinstance(function, Scalar)
    return curve_band(function, form, bounds)


def relu_band(bounds: Ends) -> Band:
    """With parallel faces; passing and blocking neurons have no gap.  NaN counts as ambiguous, and spoils the bound."""
    low, high = bounds
    u = unit_roundoff(low.dtype)
    kinked = ~((low >= 0) | (high <= 0))
    slope = torch.where(kinked, (high / (high - low)).clamp(0.0, 1.0), (low >= 0).to(low.dtype))
    gap = torch.maximum(-slope * low, (1 - slope) * high) * (0.5 + 4 * u)
    gap = torch.where(kinked, gap, 0.0)
    # With bounds c - r and c + r the height is (r^2 - c^2) / (2 r).  A positive coefficient meets the lower face, whose
    # distance from the ReLU is half as large on average.
    grows = 0.5 * (1 + ((high + low) / (high - low)).square())
    return Band((slope,), (slope,), gap, gap, kinked, grows, 0.5 * grows)


def curve_band(function: Scalar, form: AffineForm, bounds: Ends) -> Band:
    """With the slope of the chord, or flat."""
    low, high = (side.to(torch.float64) for side in bounds)
    chord = _chord(function, low, high).to(form.centre.dtype)
    slope, least, most = chord, *_ends(function, chord, low, high)
    flat = torch.zeros_like(chord)
    levels = _ends(function, flat, low, high)
    better = levels[1] - levels[0] < most - least
    slope, least, most = (torch.where(better, *pair) for pair in ((flat, slope), (levels[0], least), (levels[1], most)))
    size = slope.abs()
    # A gap grows like the square of the radius: by twice its share.
    band = _banded((slope,), (size,), (least, most), form.parts(1), (low < high))
    tiny = torch.finfo(size.dtype).tiny
    return replace(band, rates=(2 * band.gap / form.radius.clamp(min=tiny),))


def _chord(function: Scalar, low: Tensor, high: Tensor) -> Float[Tensor, "D n"]:
    """Its slope; that of the function in the middle where the ends are too close, and 0 where there is none."""
    width, middle = high - low, low / 2 + high / 2
    chord = (function.value(high) - function.value(low)) / width
    slope = torch.where(width > NARROW * (1 + middle.abs()), chord, function.slope(middle))
    return slope.nan_to_num(0.0, 0.0, 0.0)


def _ends(function: Scalar, slope: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value of f(t) - slope t, in float64."""
    slope = slope.to(low.dtype)
    return function.line(slope, low, high, 1.0).offset, function.line(slope, low, high, -1.0).offset


def product_band(form: AffineForm, bounds: Ends) -> Band:
    """With the centres of the factors as slopes."""
    p, q = form.parts(2)
    slopes, sizes = (q.centre, p.centre), (q.centre.abs(), p.centre.abs())
    (l_p, l_q), (u_p, u_q) = (PRODUCT.parts(side.to(torch.float64)) for side in bounds)
    by_symbols = _deviations(p, q)
    a, c = (slope.to(torch.float64) for slope in slopes)
    one = torch.ones_like(a)
    corners = [PRODUCT.below((a, c), (l_p, l_q), (u_p, u_q), side)[0] for side in (one, -one)]
    ends = torch.maximum(by_symbols[0], corners[0]), torch.minimum(by_symbols[1], -corners[1])
    band = _banded(slopes, sizes, ends, (p, q), (l_p < u_p) & (l_q < u_q))
    return replace(band, rates=(q.radius, p.radius))


def _deviations(p: AffineForm, q: AffineForm) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
    """Ends of p q - centre_q p - centre_p q in float64, by the symbols that the factors share."""
    both = p.spread * q.spread
    dtype, count = both.dtype, len(both)
    diagonal, size = both.sum(dim=0).to(torch.float64), both.abs().sum(dim=0).to(torch.float64)
    lost = growth(count + FEW, dtype) * size + 2 * (count + 1) * torch.finfo(dtype).tiny
    (c_p, r_p, e_p), (c_q, r_q, e_q) = ((x.to(torch.float64) for x in (f.centre, f.radius, f.error)) for f in (p, q))
    radius = r_p * r_q - size / 2 + 2 * lost + e_p * (r_q + e_q) + e_q * r_p
    middle = diagonal / 2 - c_p * c_q
    radius = radius + slack(c_p * c_q, r_p * r_q, size, e_p * (r_q + e_q), e_q * r_p)
    return middle - radius, middle + radius


def largest_band(function: Largest, form: AffineForm, bounds: Ends) -> Band:
    """Along the entry with the highest middle, or flat."""
    low, high = (side.to(torch.float64) for side in bounds)
    parts, chosen = form.parts(function.entries), function.below(low, high)
    own = function.stacked(low).gather(0, function.foremost(low, high).unsqueeze(0))[0]
    others = torch.where(chosen > 0, -torch.inf, function.stacked(high)).amax(dim=0)
    by_ends = others - own + slack(others, own)
    most = torch.minimum(_reach_beyond(parts, chosen), by_ends).clamp(min=0)
    floor, ceiling = function.image(low, high)
    flat = ceiling - floor < most
    slopes = tuple(torch.where(flat, 0.0, part).to(form.centre.dtype) for part in chosen)
    ends = torch.where(flat, floor, 0.0), torch.where(flat, ceiling, most)
    return replace(_banded(slopes, slopes, ends, parts, ~(most <= 0)), degree=1)


def _reach_beyond(parts: tuple[AffineForm, ...], chosen: Float[Tensor, "k D n"]) -> Float[Tensor, "D n"]:
    """The largest value of t_i - t_j over all i, in float64, for the chosen entries j."""
    dtype, count = parts[0].centre.dtype, len(parts[0].spread)
    mine = [part.to(dtype) for part in chosen]
    pairs = list(zip(mine, parts, strict=True))
    spread = sum((m * part.spread for m, part in pairs), torch.zeros_like(parts[0].spread))
    centre, error, radius = (
        sum((m * getattr(part, name) for m, part in pairs), torch.zeros_like(mine[0])).to(torch.float64)
        for name in ("centre", "error", "radius")
    )
    most = torch.zeros_like(centre)
    for part in parts:
        c, e, r = (x.to(torch.float64) for x in (part.centre, part.error, part.radius))
        apart = (part.spread - spread).abs().sum(dim=0).to(torch.float64)
        lost = growth(count + FEW, dtype) * (r + radius) + 2 * (count + 1) * torch.finfo(dtype).tiny
        most = torch.maximum(most, c - centre + apart + lost + e + error + slack(c, centre, apart, e + error))
    return most


def _banded(
    slopes: tuple[Tensor, ...],
    sizes: tuple[Tensor, ...],
    ends: tuple[Tensor, Tensor],
    forms: tuple[AffineForm, ...],
    bent: Bool[Tensor, "D n"],
) -> Band:
    """A band with given ends in float64; what rounding can cost its centre may be large where terms cancel."""
    dtype = slopes[0].dtype
    offset, gap = middle_of(*ends, dtype)
    total = offset.abs()
    for size, form in zip(sizes, forms, strict=True):
        total = total + size * form.centre.abs()
    one = torch.ones_like(gap)
    error = total * (FEW * unit_roundoff(dtype)) + torch.where(bent, 0.0, gap)
    return Band(slopes, sizes, offset, torch.where(bent, gap, 0.0), bent, one, one, error=error, degree=2)
