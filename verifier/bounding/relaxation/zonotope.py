"""Zonotopes: forward propagation of correlated errors, for networks with few inputs and for many boxes at a time.

Every value x[j] of a box is enclosed in centre + sum_g eps_g spread[g] + delta with all |eps_g| <= 1 and
|delta| <= error.  The first symbols are the inputs; each ambiguous neuron adds one, because any slope s in [0, 1] gives
0 <= max(t, 0) - s t <= max(-s l, (1 - s) h) on [l, h].  With s = h / (h - l) the bounds equal those of a backward sweep
with parallel faces, for all neurons of a layer at the price of one product with its weights per symbol.

Whatever rounding can spoil goes into `error`, so the bounds are rigorous in float32 as well as in float64: the
multiplications run in the cheap precision, and only the last bound of a row needs the dear one.

requires:   finite boxes in float64; in float32 a network that `fits_single`
guarantees: l_hat and u_hat enclose the exact pre-activations; NaN where something overflows
source:     zonotopes with one error term per neuron (Singh et al. 2018, "Fast and effective robustness certification")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from verifier.network.network import Affine, Network
from verifier.operators import LinearMap, Transposed
from verifier.shapes import Bool, Float, Int, Tensor

MOST_SYMBOLS = 512
"""New symbols per group and box at most; the smallest ones beyond become plain intervals."""

FEW = 12
"""Added to every rounding depth: the scalar operations around each long sum."""

LOST = 2.0**20
"""Results of a form that may have underflowed, each by less than the smallest normal number: what a layer magnifies."""

SINGLE_WEIGHTS = (torch.finfo(torch.float32).tiny, 2.0**32)
"""Sizes of weights for which the analysis holds in float32."""


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
    def of_box(cls, lower: Float[Tensor, "D n"], upper: Float[Tensor, "D n"], dtype: torch.dtype) -> AffineForm:
        """One symbol per entry.  The box may be given in a higher precision than that of the form."""
        centre, radius = _middle(lower, upper, dtype)
        spread = torch.diag_embed(radius).transpose(0, 1).contiguous()
        return cls(centre, spread, radius, torch.zeros_like(radius))

    @classmethod
    def of_interval(cls, lower: Float[Tensor, "D n"], upper: Float[Tensor, "D n"], dtype: torch.dtype) -> AffineForm:
        """No symbol at all: every entry on its own."""
        centre, radius = _middle(lower, upper, dtype)
        return cls(centre, centre.new_zeros(0, *centre.shape), torch.zeros_like(radius), radius)

    def ends(self) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
        """Bounds of every entry, rounded outward."""
        u = unit_roundoff(self.centre.dtype)
        reach = (self.radius + self.error) * (1 + 8 * u) + 4 * u * self.centre.abs()
        return self.centre - reach, self.centre + reach


@dataclass(frozen=True, eq=False)
class Noise:
    """The ambiguous neurons of a group that have a symbol of their own; boxes with fewer of them are padded.

    Their symbols begin at number `start`.  `share` holds |spread| of the symbols before the ReLU at these neurons.
    """

    start: int
    neuron: Int[Tensor, "D a"]
    present: Bool[Tensor, "D a"]
    share: Float[Tensor, "g D a"]


@dataclass(frozen=True, eq=False)
class Zonotopes:
    """Bounds of all groups, the symbols that they introduced, and the form of the output."""

    l_hat: tuple[Float[Tensor, "D _"], ...]
    u_hat: tuple[Float[Tensor, "D _"], ...]
    noises: tuple[Noise, ...]
    output: AffineForm

    @property
    def ambiguous(self) -> Int[Tensor, " D"]:
        """How many neurons of each box have a kink inside of their bounds."""
        return sum(
            (_kinked(low, high).sum(dim=1) for low, high in zip(self.l_hat, self.u_hat, strict=True)),
            start=torch.zeros(len(self.output.centre), dtype=torch.long, device=self.output.centre.device),
        )


def propagate(
    net: Network, lower: Float[Tensor, "D n0"], upper: Float[Tensor, "D n0"], most: int = MOST_SYMBOLS
) -> Zonotopes:
    """Bounds of all groups over boxes given in float64; the precision of `net` is that of the work."""
    dtype = net.output.bias.dtype
    forms, boxes = [AffineForm.of_box(lower, upper, dtype)], [AffineForm.of_interval(lower, upper, dtype)]
    l_hat, u_hat, noises, symbols = [], [], [], net.n_in
    for group in net.groups:
        form = image(group, forms)
        low, high = form.ends()
        if any(source for source, _ in group.terms):  # else the interval image is the same
            box_low, box_high = image(group, boxes).ends()
            low, high = torch.maximum(low, box_low), torch.minimum(high, box_high)
        rectified, noise = rectify(form, (low, high), symbols, most)
        symbols = len(rectified.spread)
        forms.append(rectified)
        boxes.append(AffineForm.of_interval(low.clamp(min=0), high.clamp(min=0), dtype))
        l_hat.append(low)
        u_hat.append(high)
        noises.append(noise)
    return Zonotopes(tuple(l_hat), tuple(u_hat), tuple(noises), image(net.output, forms))


def fits_single(net: Network) -> bool:
    """Whether float32 suffices for the forms of a network, given in float64.

    Smaller weights than `SINGLE_WEIGHTS` may lose more than their last digit, perhaps all of them; larger ones would
    magnify what underflows before them beyond the error that each layer adds.
    """
    return all(_fit_single(weights) for layer in net.layers for _, term in layer.terms for weights in _stored(term))


def _fit_single(weights: Float[Tensor, "..."]) -> bool:
    least, most = SINGLE_WEIGHTS
    size, exact = weights.abs(), weights.to(torch.float32).to(weights.dtype) == weights
    return bool(((exact | (size >= least)) & (size <= most)).all())


def image(layer: Affine, forms: Sequence[AffineForm]) -> AffineForm:
    """The form of x_hat, given those of all sources."""
    dtype = layer.bias.dtype
    gamma = growth(layer.depth + max(_factors(term) for _, term in layer.terms) + FEW, dtype)
    centre = layer.forward([form.centre for form in forms])
    error, lost = gamma * layer.bias.abs() + 2.0 * layer.bias_error, LOST * torch.finfo(dtype).tiny
    spread: Tensor | None = None
    for source, term in sorted(layer.terms, key=lambda pair: -len(forms[pair[0]].spread)):
        form = forms[source]
        error = error + term.magnitude(form.error + gamma * (form.centre.abs() + form.radius + form.error) + lost)
        part = term.forward(form.spread)
        if spread is None:
            spread = part
        else:
            spread[: len(part)] += part
    assert spread is not None, "a layer has at least one source"
    error = error * (1 + gamma) + torch.finfo(dtype).tiny ** 0.5
    radius = spread.abs().sum(dim=0) * (1 + growth(len(spread) + FEW, dtype))
    return AffineForm(centre.expand_as(radius), spread, radius, error.expand_as(radius))


def rectify(
    form: AffineForm, bounds: tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]], symbols: int, most: int
) -> tuple[AffineForm, Noise]:
    """The form of max(x_hat, 0), given bounds of x_hat: one new symbol per ambiguous neuron, after all `symbols`."""
    low, high = bounds
    u = unit_roundoff(low.dtype)
    kinked = _kinked(low, high)
    slope = torch.where(kinked, (high / (high - low)).clamp(0.0, 1.0), (low >= 0).to(low.dtype))
    gap = torch.maximum(-slope * low, (1 - slope) * high) * (0.5 + 4 * u)
    gap = torch.where(kinked, gap, 0.0)
    places = min(most, int(kinked.sum(dim=1).max()) if len(low) else 0)
    chosen, neuron = gap.topk(places, dim=1)
    old = len(form.spread)
    spread = form.spread.new_empty(symbols + places, *low.shape)
    torch.mul(form.spread, slope, out=spread[:old])
    spread[old:].zero_()
    spread[symbols:].scatter_(2, neuron.T.unsqueeze(-1), chosen.T.unsqueeze(-1))
    error = slope * form.error
    if places == most:
        error = error + gap.scatter(1, neuron, 0.0)
    flat = neuron + torch.arange(len(low), device=low.device).unsqueeze(1) * low.shape[1]
    share = form.spread.flatten(1).index_select(1, flat.flatten()).abs_().reshape(old, *neuron.shape)
    rectified = AffineForm(slope * form.centre + gap, spread, slope * form.radius + gap, error * (1 + 4 * u))
    return rectified, Noise(symbols, neuron, chosen > 0, share)


def growth(depth: int, dtype: torch.dtype) -> float:
    """Higham's gamma_n for any precision, enlarged because the magnitudes that it multiplies are rounded as well.

    Infinite where the analysis does not hold.
    """
    n_u = depth * unit_roundoff(dtype)
    gamma = n_u / (1.0 - n_u) if n_u < 0.05 else float("inf")
    return gamma / (1.0 - gamma) ** 3 if gamma < 0.1 else float("inf")


def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def _factors(term: LinearMap) -> int:
    """How many stored matrices the map multiplies: each entry may have been rounded to the precision of the work."""
    return sum(_factors(part) for part in getattr(term, "maps", ())) or 1


def _stored(term: LinearMap) -> Iterator[Tensor]:
    """All weights of a map."""
    for part in (*getattr(term, "maps", ()), *([term.inner] if isinstance(term, Transposed) else [])):
        yield from _stored(part)
    yield from (getattr(term, name) for name in ("weight", "values", "scale") if hasattr(term, name))


def _kinked(low: Tensor, high: Tensor) -> Tensor:
    """NaN counts as ambiguous, and spoils the bound."""
    return ~((low >= 0) | (high <= 0))


def _middle(lower: Tensor, upper: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A centre and a radius that reach both ends, in the given precision."""
    info = torch.finfo(dtype)
    centre = (lower / 2 + upper / 2).to(dtype)
    exact = centre.to(lower.dtype)
    radius = torch.maximum(upper - exact, exact - lower).to(dtype)
    inexact = (exact != lower) | (exact != upper)
    return centre, radius * (1 + 4 * info.eps) + torch.where(inexact, info.tiny**0.75, 0.0)
