"""Zonotopes: forward propagation of correlated errors, for networks with few inputs and for many boxes at a time.

Every value x[j] of a box is enclosed in centre + sum_g eps_g spread[g] + delta with all |eps_g| <= 1 and
|delta| <= error.  The first symbols are the inputs; each ambiguous neuron adds one, because any slope s in [0, 1] gives
0 <= max(t, 0) - s t <= max(-s l, (1 - s) h) on [l, h].  With s = h / (h - l) the bounds equal those of a backward sweep
with parallel faces, for all neurons of a layer at the price of one product with its weights per symbol.  Neurons of
other functions add one each, which fills the band that their two parallel faces leave (`bands`).

Whatever rounding can spoil goes into `error`, so the bounds are rigorous in float32 as well as in float64: the
multiplications run in the cheap precision, and only the last bound of a row needs the dear one.

requires:   finite boxes in float64; in float32 a network that `fits_single`
guarantees: l_hat and u_hat enclose the exact pre-activations; NaN where something overflows
source:     zonotopes with one error term per neuron (Singh et al. 2018, "Fast and effective robustness certification")
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.relaxation.bands import FEW, Band, band_of
from verifier.bounding.relaxation.form import AffineForm, growth, unit_roundoff
from verifier.functions import Function
from verifier.network.network import Affine, Network
from verifier.operators import LinearMap, Transposed
from verifier.precision import direct_sums
from verifier.shapes import Bool, Float, Int, Tensor

MOST_SYMBOLS = 512
"""New symbols per group and box at most; the smallest ones beyond become plain intervals."""

FAINT, FAINT_KINK = 2.0**-16, 2.0**-30
"""Gaps of curves and products, and those of ReLUs, that are smaller than this share of the largest radius of their box
become plain intervals too.  Where nothing moves, all that is left are rounding errors: a product with a factor that is
fixed has such a gap, and so has a ReLU of zero."""

LOST = 2.0**20
"""Results of a form that may have underflowed, each by less than the smallest normal number: what a layer magnifies."""

SINGLE_WEIGHTS = (torch.finfo(torch.float32).tiny, 2.0**32)
"""Sizes of weights for which the analysis holds in float32."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The bent neurons of a group that have a symbol of their own; boxes with fewer of them are padded.

    Their symbols begin at number `start`.  `share` says what the symbols before the group contribute to the radius at
    these neurons, or to their gaps; `scale` is what all of them together must change by to change the gap as much, and
    `above` and `below` how fast the faces of a sweep depart from the function with it.  `count` also counts the bent
    neurons that have no symbol.
    """

    start: int
    neuron: Int[Tensor, "D a"]
    present: Bool[Tensor, "D a"]
    share: Float[Tensor, "g D a"]
    scale: Float[Tensor, "D a"]
    above: Float[Tensor, "D a"]
    below: Float[Tensor, "D a"]
    count: Int[Tensor, " D"]

    def select(self, rows: Int[Tensor, " d"]) -> Noise:
        """Some of the boxes."""
        alike = {name: getattr(self, name)[rows] for name in ("neuron", "present", "scale", "above", "below", "count")}
        return replace(self, share=self.share[:, rows], **alike)


@dataclass(frozen=True, eq=False)
class Zonotopes:
    """Bounds of all groups, the symbols that they introduced, and the form of the output.

    The first symbols are those of the inputs that are `moving`, of all inputs if that is None.  `factors` are the forms
    of the pre-activations of groups of products.
    """

    l_hat: tuple[Float[Tensor, "D _"], ...]
    u_hat: tuple[Float[Tensor, "D _"], ...]
    noises: tuple[Noise, ...]
    output: AffineForm
    factors: tuple[AffineForm | None, ...]
    moving: Int[Tensor, " m"] | None = None

    def select(self, rows: Int[Tensor, " d"]) -> Zonotopes:
        """Some of the boxes."""
        return replace(
            self,
            l_hat=tuple(low[rows] for low in self.l_hat),
            u_hat=tuple(high[rows] for high in self.u_hat),
            noises=tuple(noise.select(rows) for noise in self.noises),
            output=self.output.select(rows),
            factors=tuple(None if form is None else form.select(rows) for form in self.factors),
        )

    @property
    def ambiguous(self) -> Int[Tensor, " D"]:
        """How many neurons of each box are not linear inside of their bounds."""
        return sum(
            (noise.count for noise in self.noises),
            start=torch.zeros(len(self.output.centre), dtype=torch.long, device=self.output.centre.device),
        )


def propagate(
    net: Network,
    lower: Float[Tensor, "D n0"],
    upper: Float[Tensor, "D n0"],
    most: int = MOST_SYMBOLS,
    moving: Int[Tensor, " m"] | None = None,
    without: Collection[int] = (),
) -> Zonotopes:
    """Bounds of all groups over boxes given in float64; the precision of `net` is that of the work.

    `moving` names the inputs that get symbols, if the others are constant up to rounding.  Groups in `without` count as
    zero after their pre-activations, and get no symbols: whoever names them adds what they are.  Where a function may
    not be defined on all of a box, nothing is known of the output.
    """
    walk = Forms(lower, upper, net.output.bias.dtype, moving)
    l_hat, u_hat, noises, factors = [], [], [], list[AffineForm | None]()
    doubt = net.output.bias.new_zeros(1, 1)
    for group in net.groups:
        form, (low, high) = walk.image(group)
        if group.function.partial:
            doubt = doubt + torch.where(group.function.defined(low, high).all(dim=1, keepdim=True), 0.0, torch.inf)
        left_out = len(walk.values) in without
        noises.append(
            walk.skip(form, group.neurons) if left_out else walk.enter(group.function, form, (low, high), most)
        )
        l_hat.append(low)
        u_hat.append(high)
        factors.append(form if group.function.is_product else None)
    output = image(net.output, walk.values)
    output = replace(output, error=output.error + doubt)
    return Zonotopes(tuple(l_hat), tuple(u_hat), tuple(noises), output, tuple(factors), moving)


class Forms:
    """Forms and intervals of the values of all sources so far, beginning with the input.

    Group after group: `image` gives the form and the bounds of x_hat, `enter` goes on from any bounds that hold.
    """

    def __init__(
        self,
        lower: Float[Tensor, "D n0"],
        upper: Float[Tensor, "D n0"],
        dtype: torch.dtype,
        moving: Int[Tensor, " m"] | None,
    ) -> None:
        self.values = [AffineForm.of_box(lower, upper, dtype, moving)]
        self._boxes = [AffineForm.of_interval(lower, upper, dtype)]
        self.symbols = len(self.values[0].spread)

    def image(
        self, group: Affine, rough: Affine | None = None
    ) -> tuple[AffineForm, tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]]:
        """The form of x_hat, and its bounds: those of the form and those of intervals, whichever are better.

        Once spreads were rounded, `rough` is the group in their precision.
        """
        form = image(group, self.values, rough)
        low, high = form.ends()
        if any(source for source, _ in group.terms):  # else the interval image is no better
            box_low, box_high = image(group, self._boxes, rough).ends()
            low, high = torch.maximum(low, box_low), torch.minimum(high, box_high)
        return form, (low, high)

    def enter(
        self, function: Function, form: AffineForm, ends: tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]], most: int
    ) -> Noise:
        """The next group, with `most` new symbols at most."""
        dtype = form.centre.dtype
        activated, noise = activate(form, band_of(function, form, ends), self.symbols, most)
        self.symbols = len(activated.spread)
        self.values.append(activated)
        box = AffineForm.of_interval(*_activation(function, *ends), dtype)
        self._boxes.append(replace(box, spread=box.spread.to(activated.spread.dtype)))
        return noise

    def skip(self, form: AffineForm, neurons: int) -> Noise:
        """The next group, as zeros: it has no symbol and no bent neuron."""
        zero, empty = (form.centre.new_zeros(len(form.centre), size) for size in (neurons, 0))
        zeros = AffineForm(zero, form.spread.new_zeros(0, *zero.shape), zero, zero)
        self.values.append(zeros)
        self._boxes.append(zeros)
        none = empty.to(torch.long)
        return Noise(self.symbols, none, none > 0, form.spread[..., :0], empty, empty, empty, none.sum(dim=1))

    def round_spreads(self, dtype: torch.dtype) -> None:
        """Go on with spreads in a lower precision; centres and errors keep theirs.

        What that loses is one more relative rounding of each radius, which the next layer counts among its `FEW`.
        """
        self.values = [replace(form, spread=form.spread.to(dtype)) for form in self.values]
        self._boxes = [replace(form, spread=form.spread.to(dtype)) for form in self._boxes]

    def drop(self, source: int) -> None:
        """Nobody reads that source any more."""
        nothing = self.values[source].centre.new_zeros(0)
        self.values[source] = self._boxes[source] = AffineForm(nothing, nothing, nothing, nothing)


def symbols_of(net: Network, boxes: int, memory_bytes: int) -> int:
    """How many symbols fit into memory: the forms of a layer before and after its neurons, and those of a residual."""
    return memory_bytes // (4 * 4 * max(1, boxes) * max([net.n_in, *(layer.size for layer in net.layers)]))


def symbols_within(net: Network, symbols: int, inputs: int) -> int:
    """New symbols per group, if there may be so many in all, and the inputs take theirs."""
    return min(MOST_SYMBOLS, max(0, symbols - inputs) // max(1, len(net.groups)))


def fits_single(net: Network) -> bool:
    """Whether float32 suffices for the forms of a network, given in float64.

    Smaller weights than `SINGLE_WEIGHTS` may lose more than their last digit, perhaps all of them; larger ones would
    magnify what underflows before them beyond the error that each layer adds.  Nor does it where float32 is not added
    up as the errors assume (`precision`).
    """
    if not direct_sums(net.output.bias.device):
        return False
    return all(_fit_single(weights) for layer in net.layers for _, term in layer.terms for weights in _stored(term))


def _fit_single(weights: Float[Tensor, "..."]) -> bool:
    least, most = SINGLE_WEIGHTS
    size, exact = weights.abs(), weights.to(torch.float32).to(weights.dtype) == weights
    return bool(((exact | (size >= least)) & (size <= most)).all())


def image(layer: Affine, forms: Sequence[AffineForm], rough: Affine | None = None) -> AffineForm:
    """The form of x_hat, given those of all sources; `rough` is the same layer in the precision of their spreads."""
    coarse = layer if rough is None else rough
    dtype, single = layer.bias.dtype, coarse.bias.dtype
    depth = layer.depth + max(_factors(term) for _, term in layer.terms) + FEW
    gamma, gamma_spread, lost = growth(depth, dtype), growth(depth, single), LOST * torch.finfo(single).tiny
    centre = layer.forward([form.centre for form in forms])
    error = gamma * layer.bias.abs() + 2.0 * layer.bias_error
    spread: Tensor | None = None
    terms = zip(layer.terms, coarse.terms, strict=True)
    for (source, term), (_, pushed) in sorted(terms, key=lambda pair: -len(forms[pair[0][0]].spread)):
        form = forms[source]
        size = form.error + gamma * (form.centre.abs() + form.error) + gamma_spread * form.radius
        error = error + term.magnitude(size + lost)
        part = pushed.forward(form.spread)
        if spread is None:
            spread = part
        else:
            spread[: len(part)] += part
    assert spread is not None, "a layer has at least one source"
    error = error * (1 + gamma) + torch.finfo(single).tiny ** 0.5
    radius = spread.abs().sum(dim=0).to(dtype) * (1 + growth(len(spread) + FEW, single))
    return AffineForm(centre.expand_as(radius), spread, radius, error.expand_as(radius))


def activate(form: AffineForm, band: Band, symbols: int, most: int) -> tuple[AffineForm, Noise]:
    """The form of a group's activations, given that of x_hat: one new symbol per bent neuron, after all `symbols`."""
    parts, gap = form.parts(len(band.slopes)), band.gap
    u, old = unit_roundoff(gap.dtype), len(form.spread)
    count = _worth_a_symbol(band, parts).sum(dim=1)
    places = min(most, int(count.max()) if len(gap) else 0)
    chosen, neuron = gap.topk(places, dim=1)
    own, rest = torch.zeros_like(gap).scatter(1, neuron, chosen), gap.scatter(1, neuron, 0.0)
    spread = form.spread.new_empty(symbols + places, *gap.shape)
    centre, radius, error = band.offset, own, band.error
    for number, (slope, size, part) in enumerate(zip(band.slopes, band.sizes, parts, strict=True)):
        if number:
            spread[:old].addcmul_(part.spread, slope.to(spread.dtype))
        else:
            torch.mul(part.spread, slope.to(spread.dtype), out=spread[:old])
        centre, radius = slope * part.centre + centre, size * part.radius + radius
        error = size * part.error if error is None else error + size * part.error
    assert error is not None
    spread[old:].zero_()
    spread[symbols:].scatter_(2, neuron.T.unsqueeze(-1), chosen.T.unsqueeze(-1).to(spread.dtype))
    activated = AffineForm(centre, spread, radius, (error + rest) * (1 + 4 * u))
    return activated, _noise(parts, band, (symbols, neuron, chosen), count)


def _worth_a_symbol(band: Band, parts: Sequence[AffineForm]) -> Bool[Tensor, "D n"]:
    """Which bent neurons have a gap that is worth a symbol; NaN is, and spoils the bound."""
    radius, size = band.gap, band.offset.abs()
    for slope, part in zip(band.sizes, parts, strict=True):
        radius, size = radius + slope * part.radius, size + slope * part.centre.abs()
    share, noise = FAINT_KINK if band.sharp else FAINT, FEW * unit_roundoff(radius.dtype) * size
    return band.bent & ~(band.gap <= torch.maximum(share * radius, noise).amax(dim=1, keepdim=True))


def _noise(
    parts: Sequence[AffineForm], band: Band, chosen: tuple[int, Int[Tensor, "D a"], Float[Tensor, "D a"]], count: Tensor
) -> Noise:
    """What is known of the symbols that a band has added: the first one's number, their neurons, their gaps."""
    start, neuron, gap = chosen
    share = None
    for number, part in enumerate(parts):
        mine = _taken(part.spread, neuron)
        if band.rates is not None:
            mine = mine * band.rates[number].gather(1, neuron)
        share = mine if share is None else share + mine
    assert share is not None
    scale = share.sum(dim=0).clamp(min=torch.finfo(share.dtype).tiny) / band.degree
    above, below = band.above.gather(1, neuron), band.below.gather(1, neuron)
    return Noise(start, neuron, gap > 0, share, scale, above, below, count)


def _taken(spread: Float[Tensor, "g D n"], neuron: Int[Tensor, "D a"]) -> Float[Tensor, "g D a"]:
    """The magnitudes at some neurons of each box."""
    boxes, size = spread.shape[1:]
    flat = neuron + torch.arange(boxes, device=neuron.device).unsqueeze(1) * size
    return spread.flatten(1).index_select(1, flat.flatten()).abs_().reshape(len(spread), *neuron.shape)


def _activation(
    function: Function, low: Float[Tensor, "D n_hat"], high: Float[Tensor, "D n_hat"]
) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
    """Bounds of the activations; those of other functions than ReLUs in float64."""
    if function.is_relu:
        return function.image(low, high)
    return function.image(low.to(torch.float64), high.to(torch.float64))


def _factors(term: LinearMap) -> int:
    """How many stored matrices the map multiplies: each entry may have been rounded to the precision of the work."""
    return sum(_factors(part) for part in getattr(term, "maps", ())) or 1


def _stored(term: LinearMap) -> Iterator[Tensor]:
    """All weights of a map."""
    for part in (*getattr(term, "maps", ()), *([term.inner] if isinstance(term, Transposed) else [])):
        yield from _stored(part)
    yield from (getattr(term, name) for name in ("weight", "values", "scale") if hasattr(term, name))
