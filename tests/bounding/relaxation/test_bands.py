"""Bands around curves and products hold in exact arithmetic, in both precisions, and not without their errors.

The law: x - s . t is within `gap` of `offset` for the floats s, offset and gap as they are (neurons without a symbol
have the gap in `error`), and offset + s . centre, as the precision rounds it, is off by at most `error`.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
import torch
from functions.references import ALL, mpf

from verifier.bounding.relaxation import bands
from verifier.bounding.relaxation.bands import Band, band_of
from verifier.bounding.relaxation.form import AffineForm
from verifier.functions import PRODUCT
from verifier.functions.base import Scalar

PRECISIONS = (torch.float32, torch.float64)
NAMES = ("sigmoid", "sin", "exp", "power 2", "power 3", "softplus", "gelu", "floor", "sign")


def random_form(seed: int, n: int, dtype: torch.dtype, size: float) -> AffineForm:
    """Centres of some size, spreads of all sizes below that, and errors."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(1, n, generator=generator, dtype=torch.float64) * size
    scale = 10.0 ** -torch.randint(0, 7, (1, n), generator=generator).double()
    spread = torch.randn(3, 1, n, generator=generator, dtype=torch.float64) * scale
    error = torch.rand(1, n, generator=generator, dtype=torch.float64) * scale * (torch.arange(n) % 3 == 0) * 0.2
    spread[:, :, 4::5] = 0.0  # some do not move
    spread[1 + seed % 3 :] = 0.0  # few symbols, which take extreme values together
    radius = spread.to(dtype).abs().sum(dim=0) * (1 + 1e-6)
    return AffineForm(centre.to(dtype), spread.to(dtype), radius, error.to(dtype))


def points(form: AffineForm, seed: int, count: int) -> list[list[Fraction]]:
    """Values that the form stands for, exactly."""
    generator = torch.Generator().manual_seed(seed)
    g, n = form.spread.shape[0], form.centre.shape[1]
    eps = (3 * torch.rand(count, g, generator=generator, dtype=torch.float64) - 1.5).clamp(-1, 1)
    off = (3 * torch.rand(count, n, generator=generator, dtype=torch.float64) - 1.5).clamp(-1, 1)
    centre, error = ([Fraction(v) for v in part[0].tolist()] for part in (form.centre, form.error))
    spread = [[Fraction(v) for v in row] for row in form.spread[:, 0].tolist()]
    found = []
    for signs, share in zip(eps.tolist(), off.tolist(), strict=True):
        moved = [sum(Fraction(s) * row[i] for s, row in zip(signs, spread, strict=True)) for i in range(n)]
        found.append([centre[i] + moved[i] + Fraction(share[i]) * error[i] for i in range(n)])
    return found


def room(band: Band, i: int) -> Fraction:
    """How far x - s . t may be from the offset."""
    assert band.error is not None
    return Fraction(float(band.gap[0, i])) + (0 if bool(band.bent[0, i]) else Fraction(float(band.error[0, i])))


def rounded_well(band: Band, form: AffineForm) -> bool:
    """Whether the centre of the result is as near as its error says."""
    parts, found, exact = form.parts(len(band.slopes)), band.offset, [Fraction(v) for v in band.offset[0].tolist()]
    for slope, part in zip(band.slopes, parts, strict=True):
        found = slope * part.centre + found
        pairs = zip(slope[0].tolist(), part.centre[0].tolist(), strict=True)
        exact = [total + Fraction(s) * Fraction(c) for total, (s, c) in zip(exact, pairs, strict=True)]
    assert band.error is not None
    rest = zip(found[0].tolist(), exact, band.error[0].tolist(), strict=True)
    return all(abs(Fraction(value) - truth) <= Fraction(error) for value, truth, error in rest)


def products_hold(dtype: torch.dtype, seeds: range = range(6)) -> bool:
    good = True
    for seed in seeds:
        n = 10
        form = random_form(seed, 2 * n, dtype, (1.0, 1e4, 1e-3)[seed % 3])
        band = band_of(PRODUCT, form, form.ends())
        (a, c), offset = (slope[0].tolist() for slope in band.slopes), band.offset[0].tolist()
        for t in points(form, seed, 12):
            for i in range(n):
                rest = t[i] * t[n + i] - Fraction(a[i]) * t[i] - Fraction(c[i]) * t[n + i]
                good &= abs(rest - Fraction(offset[i])) <= room(band, i)
        good &= rounded_well(band, form)
    return good


def curves_hold(name: str, dtype: torch.dtype, seeds: range = range(3)) -> bool:
    reference, n, good = ALL[name], 10, True
    assert isinstance(reference.function, Scalar)
    for seed in seeds:
        form = random_form(seed, n, dtype, (1.0, 8.0, 1e-3)[seed % 3])
        band = band_of(reference.function, form, form.ends())
        slope, offset = band.slopes[0][0].tolist(), band.offset[0].tolist()
        for t in points(form, seed, 8):
            for i in range(n):
                at = mpf(t[i].numerator) / mpf(t[i].denominator)
                rest = reference.exact(at) - mpf(slope[i]) * at - mpf(offset[i])
                most = room(band, i)
                good &= bool(abs(rest) <= mpf(most.numerator) / mpf(most.denominator))
        good &= rounded_well(band, form)
    return good


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_products_are_within_their_bands(dtype: torch.dtype) -> None:
    assert products_hold(dtype)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_curves_are_within_their_bands(name: str, dtype: torch.dtype) -> None:
    with mpmath.workprec(300):
        assert curves_hold(name, dtype)


def without_errors(form: AffineForm, bounds: object) -> Band:
    bare = AffineForm(form.centre, form.spread, form.radius, torch.zeros_like(form.error))
    return PRODUCT_BAND(bare, bare.ends())


def too_narrow(low: torch.Tensor, high: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    centre = (low / 2 + high / 2).to(dtype)
    return centre, (high.to(dtype) - low.to(dtype)) / 2


PRODUCT_BAND, DEVIATIONS = bands.product_band, bands._deviations


def shifted(p: AffineForm, q: AffineForm) -> tuple[torch.Tensor, torch.Tensor]:
    """As if squares of symbols were between -1 and 0."""
    low, high = DEVIATIONS(p, q)
    diagonal = (p.spread * q.spread).sum(dim=0).double()
    return low - diagonal, high - diagonal


MISTAKES = {
    "errors of factors": ("product_band", without_errors),
    "the rounding of the middle": ("middle_of", too_narrow),
    "the sign of squares": ("_deviations", shifted),
    "the rounding of the centre": ("FEW", 0),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(bands, *MISTAKES[name])
    assert not all(products_hold(dtype) for dtype in PRECISIONS)
