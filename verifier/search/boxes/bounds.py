"""Bounds of boxes: a zonotope for the neurons, an ascent over slopes, and one rigorous sweep for the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.core.state import tree_map
from verifier.bounding.core.sweep import Choice, Plane, Sweep, Trace
from verifier.bounding.hidden import GroupBounds
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.relaxation.joint import MOST_SYMBOLS, Factors, JointProducts
from verifier.bounding.relaxation.least import least_rows
from verifier.bounding.relaxation.neurons import neurons_of
from verifier.bounding.relaxation.zonotope import MOST_SYMBOLS as NEW_SYMBOLS
from verifier.bounding.relaxation.zonotope import Zonotopes, propagate
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.alpha_crown import of_rows
from verifier.branching.input_split import BoxView, InputSplit
from verifier.network.network import Network
from verifier.search.boxes.boxes import BoxDomains, Table
from verifier.search.boxes.climb import best_weights, climb
from verifier.search.boxes.clip import Clipping, Parents, clipped, clipped_in_steps, hull
from verifier.search.boxes.contract import Contracted, Contraction
from verifier.search.boxes.curved import CurvedRows, last_products
from verifier.shapes import Bool, Float, Int, Tensor

SINGLE, DOUBLE = 0, 1
"""Tiers: the precision of the zonotope.  The sweep that closes boxes is always made in float64."""

NOTHING_LEFT = 1.0
"""The bound of a clause whose rows contradict the box: any number above zero."""


@dataclass(frozen=True, eq=False)
class BoxBounds:
    """What is known of a batch of boxes.

    `closed` marks the clauses that hold no point of their box, `lower` is the bound of each clause, -inf where it was
    not asked for; `some` says whether clipping left anything, `low` and `high` what it left; `corner` is where the
    worst plane is least; `doubt` is what rounding in the zonotope may have cost the worst clause.
    """

    lower: Float[Tensor, "D C"]
    closed: Bool[Tensor, "D C"]
    some: Bool[Tensor, " D"]
    low: Float[Tensor, "D n0"]
    high: Float[Tensor, "D n0"]
    corner: Float[Tensor, "D n0"]
    gains: Float[Tensor, "D n0"]
    kinks: Int[Tensor, " D"]
    doubt: Float[Tensor, " D"]
    evidence: BoxEvidence


@dataclass(frozen=True, eq=False)
class Pairs:
    """A pending clause of a box: all that belongs to the pairs has one row for each; `box` says which box it is."""

    net: Network
    boxes: BoxDomains
    found: Zonotopes
    rows: Conjunction
    box: Int[Tensor, " P"]
    known: Contracted
    ball: InputBall | None

    def variables(self, effort: Effort) -> Float[Tensor, "P 1 V"]:
        """Good slopes of all neurons and weights of the rows, found in the precision of the zonotope."""
        dtype = self.found.output.centre.dtype
        rows = self.rows.to(dtype)
        inputs = AffineForm.of_box(self.boxes.low, self.boxes.high, dtype, self.found.moving)
        weights = best_weights(rows, (inputs, self.found.output), self.box, effort.weights)
        region = self.region(dtype)
        neurons = tuple(neurons_of(region, k) for k in range(1, len(self.net.layers)))
        sweep = Sweep(self.net, region, len(self.net.layers), neurons, None)  # whatever it finds is evaluated again
        return climb(of_rows(sweep, rows), weights.unsqueeze(1), effort.slopes)

    @property
    def joined(self) -> bool:
        """Whether there are products, and not too many symbols to eliminate them together."""
        forms = [form for form in self.found.factors if form is not None]
        return bool(forms) and all(len(form.spread) <= MOST_SYMBOLS for form in forms)

    def together(self, sweep: Sweep, rest: Int[Tensor, " R"]) -> Sweep:
        """The sweep of some pairs, with products that are eliminated together."""
        some = sweep.select(rest)
        neurons = list(some.neurons)
        for k, form in enumerate(self.found.factors):
            if form is not None:
                own = neurons[k]
                neurons[k] = JointProducts(own.l_hat, own.u_hat, Factors.of(form, self.box[rest]))
        return replace(some, neurons=tuple(neurons))

    def each(self, lower: Float[Tensor, "P S"]) -> Float[Tensor, "P S"]:
        """The bounds of the combination and of all single rows of each pair; padding does not count."""
        if lower.shape[1] == 1:
            return lower
        return torch.cat([lower[:, :1], lower[:, 1:].masked_fill(~self.rows.present, -torch.inf)], dim=1)

    def region(self, dtype: torch.dtype) -> Region:
        """The boxes and their bounds; all neurons count as kinks, because boxes differ in which are ambiguous."""
        known, functions = self.known, tuple(group.function for group in self.net.groups)
        box = Region(known.low, known.high, known.l_hat, known.u_hat, functions, ball=self.ball)
        return box.to(dtype).full_width()


@dataclass(frozen=True, eq=False)
class BoxEvidence:
    """For every pending clause of some boxes: slopes and row weights, and the bounds that they prove.

    `l_hat` and `u_hat` are bounds of all neurons of the boxes; `lower` those of the combination and of single rows;
    `steps` is how their planes have clipped the boxes, where that is wanted.
    """

    box: Int[Tensor, " P"]
    clause: Int[Tensor, " P"]  # numbers of the property
    l_hat: tuple[Float[Tensor, "D _"], ...]
    u_hat: tuple[Float[Tensor, "D _"], ...]
    variables: Float[Tensor, "P 1 V"]
    lower: Float[Tensor, "P S"]
    steps: Clipping | None


@dataclass(frozen=True)
class Care:
    """What evidence must look like if somebody is to check it: how it is rounded, and what else it must leave room for.

    Slopes are multiples of 1 / `steps`; rounding errors count `errors` more times; clipping cuts off what is beyond
    zero by `slack`, in relation to the terms of a plane, in steps that can be followed if `followed`.  Where `joint` is
    False, products have faces of their own each.  Where `forms` is False, sweeps alone bound rows.  `hidden` bounds
    neurons in the place of zonotopes, for whoever does not know what symbols have in common.
    """

    steps: int | None = None
    errors: float = 0.0
    slack: float = 0.0
    followed: bool = False
    joint: bool = True
    forms: bool = True
    hidden: GroupBounds | None = None

    def known(self, net: Network, boxes: BoxDomains, found: Zonotopes) -> Zonotopes:
        """The zonotopes, with those bounds of neurons that others can compute again."""
        if self.hidden is None:
            return found
        region = self.hidden.region(net, boxes.low, boxes.high, Until())
        return replace(found, l_hat=region.l_hat, u_hat=region.u_hat)

    def rounded(self, variables: Float[Tensor, "P 1 V"], slopes: int) -> Float[Tensor, "P 1 V"]:
        """The first ones are slopes."""
        if self.steps is None:
            return variables
        found = variables.double()
        found[..., :slopes] = (found[..., :slopes].clamp(0.0, 1.0) * self.steps).round() / self.steps
        return found


@dataclass(frozen=True)
class Effort:
    """Steps of the ascents over the weights of rows and over slopes."""

    weights: int = 10
    slopes: int = 6


@dataclass(frozen=True, eq=False)
class Below:
    """Planes below the best combination of each pair's rows and, if there are several rows, below each of them."""

    planes: Plane
    coefficients: Sequence[Float[Tensor, "P S _"] | None]  # of x[k] in a sweep
    variables: Float[Tensor, "P 1 V"]
    doubt: Float[Tensor, " P"]  # what rounding in the zonotope may have cost
    owed: Float[Tensor, "P g"] | None = None  # what symbols cost the first plane


@dataclass(frozen=True, eq=False)
class BoxBounder:
    """Bounds every pending clause of a batch of boxes.

    requires:   `net` in float64, `single` the same in float32
    guarantees: `lower`, `low` and `high` include all rounding errors, in both tiers
    """

    net: Network
    single: Network
    table: Table
    effort: Effort
    care: Care = field(default_factory=Care)
    contraction: Contraction | None = None
    symbols: int = NEW_SYMBOLS  # of neurons, for each group

    @cached_property
    def last(self) -> frozenset[int]:
        """The groups of products that are bounded together with the rows."""
        return last_products(self.net) if self.care.joint else frozenset()

    def bound(self, boxes: BoxDomains) -> BoxBounds:
        """Require: all boxes have the same tier and something pending.

        Clauses that the forms of the zonotope close need no sweep.  Roundings in forms are counted neuron by neuron,
        those of a sweep by the sizes of whole layers: with numbers of many different sizes only the former leave
        anything.
        """
        net = self.net if int(boxes.tier[0]) == DOUBLE else self.single
        curved = self._curved(net, boxes) if self.last else None
        if curved is not None:
            return curved
        found = propagate(net, boxes.low, boxes.high, most=self.symbols, moving=self.table.moving)
        if not self.care.forms:
            return self._swept(net, boxes, self.care.known(self.net, boxes, found))
        first = self._by_forms(boxes, found)
        left = boxes.pending & ~closes(first)
        rows = torch.nonzero(left.any(dim=1)).flatten()
        if not len(rows):
            return _closed(boxes, found, first)
        some = replace(boxes.select(rows), pending=left[rows])
        swept = self._swept(net, some, self.care.known(self.net, some, found.select(rows)))
        return swept if torch.equal(left, boxes.pending) else _among(boxes, _closed(boxes, found, first), rows, swept)

    def _by_forms(self, boxes: BoxDomains, found: Zonotopes) -> Float[Tensor, "D C"]:
        """Bounds of all pending clauses by their single rows over the forms of the zonotope; -inf for the others."""
        box, clause = torch.nonzero(boxes.pending, as_tuple=True)
        inputs = AffineForm.of_box(boxes.low, boxes.high, found.output.centre.dtype, found.moving)
        rows = self.table.rows(boxes.root[box], clause)
        lower = torch.full(boxes.pending.shape, -torch.inf, dtype=torch.float64, device=box.device)
        lower[box, clause] = least_rows(rows, (inputs, found.output), box).amax(dim=1)
        return lower

    def _curved(self, net: Network, boxes: BoxDomains) -> BoxBounds | None:
        """By the quadratic functions that the rows are; None if there are too many symbols."""
        ends = boxes.low, boxes.high
        found = propagate(net, *ends, most=self.symbols, moving=self.table.moving, without=self.last)
        pairs, clause = self._pairs(net, boxes, found)
        curved = CurvedRows(self.net, self.last, found, ends, pairs.rows, pairs.box)
        if curved.symbols > MOST_SYMBOLS:
            return None
        planes = curved.planes()
        best = pairs.each(planes.plane.lower).argmax(dim=1, keepdim=True)
        variables = torch.cat([planes.weights.new_zeros(len(best), self.net.neurons), planes.weights], dim=1)
        doubt = planes.doubt.gather(1, best).squeeze(1)
        return self._summed_up(pairs, clause, Below(planes.plane, [], variables.unsqueeze(1), doubt, planes.owed))

    def _swept(self, net: Network, boxes: BoxDomains, found: Zonotopes) -> BoxBounds:
        """By ascents and sweeps, given the zonotope in the precision of `net`."""
        pairs, clause = self._pairs(net, boxes, found)
        variables = self.care.rounded(pairs.variables(self.effort), self.net.neurons)
        trace = self._traced(pairs, variables)
        error = found.output.error[pairs.box].to(torch.float64).unsqueeze(-1)
        doubt = (pairs.rows.A.abs() @ error).squeeze(-1).amax(dim=-1)
        return self._summed_up(pairs, clause, Below(trace.plane, trace.coefficients, variables, doubt))

    def _summed_up(self, pairs: Pairs, clause: Int[Tensor, " P"], below: Below) -> BoxBounds:
        """What planes below the rows of all pairs say of the boxes."""
        boxes, found, box, planes = pairs.boxes, pairs.found, pairs.box, below.planes
        assert planes.error is not None
        each = pairs.each(planes.lower - self.care.errors * planes.error if self.care.errors else planes.lower)
        best = torch.where(pairs.known.empty, NOTHING_LEFT, each.amax(dim=1))
        lower = torch.full(boxes.pending.shape, -torch.inf, dtype=best.dtype, device=best.device)
        lower[box, clause] = best
        place = torch.zeros_like(boxes.pending, dtype=torch.long)
        place[box, clause] = torch.arange(len(box), device=box.device)
        least = torch.where(boxes.pending, lower, torch.inf).argmin(dim=1, keepdim=True)
        worst = place.gather(1, least).squeeze(1)
        (low, high), some, steps = _clipped(pairs, planes, ~closes(best), self.care)
        slope = planes.slope[worst, 0]
        lam = [None if c is None else c[worst, 0] for c in below.coefficients]
        owed = None if below.owed is None else below.owed[worst].T
        return BoxBounds(
            lower,
            closes(lower),
            some,
            low,
            high,
            planes.x0[worst, 0],
            InputSplit().scores(BoxView(found, lam, slope.abs() * (boxes.high - boxes.low), owed))
            * (1.0 + pairs.known.press[worst]),
            found.ambiguous,
            below.doubt[worst],
            BoxEvidence(
                box,
                self.table.number[boxes.root[box], clause],
                found.l_hat,
                found.u_hat,
                below.variables,
                each,
                steps,
            ),
        )

    def _pairs(self, net: Network, boxes: BoxDomains, found: Zonotopes) -> tuple[Pairs, Int[Tensor, " P"]]:
        """The pending clauses of all boxes, and their places in the table."""
        box, clause = torch.nonzero(boxes.pending, as_tuple=True)
        rows = self.table.rows(boxes.root[box], clause)
        return Pairs(net, boxes, found, rows, box, self._known(boxes, found, rows, box), self.table.ball), clause

    def _known(self, boxes: BoxDomains, found: Zonotopes, rows: Conjunction, box: Int[Tensor, " P"]) -> Contracted:
        """What is known of each pair: of its box and, where the rows tell more, of what they leave of it."""
        sides = boxes.low[box], boxes.high[box]
        hidden = [(low[box], high[box]) for low, high in zip(found.l_hat, found.u_hat, strict=True)]
        if self.contraction is None:
            return Contracted.none(sides, hidden)
        return self.contraction.contracted(rows, sides, [(low.double(), high.double()) for low, high in hidden])

    def _traced(self, pairs: Pairs, variables: Float[Tensor, "P 1 V"]) -> Trace:
        """A plane below the best combination of each pair's rows and, if there are several rows, below each of them."""
        rows, layer = pairs.rows, len(self.net.layers)
        count = rows.c.shape[1]
        sizes = [group.neurons for group in self.net.groups]
        *slopes, weights = variables.to(torch.float64).split([*sizes, count], dim=-1)
        if count > 1:
            each = torch.eye(count, dtype=weights.dtype, device=weights.device).expand(len(weights), -1, -1)
            weights = torch.cat([weights, each * rows.present.unsqueeze(1)], dim=1)
        sweep = Sweep.prepare(self.net, pairs.region(torch.float64), layer)
        choices = [Choice(kinks.faces(slope)) for kinks, slope in zip(sweep.neurons, slopes, strict=True)]
        objective = rows.objective(sweep, weights)
        trace = sweep.backward(objective, choices)
        if not self.care.joint or not pairs.joined:
            return trace
        rest = torch.nonzero(~closes(pairs.each(trace.lower)).any(dim=1)).flatten()
        if not len(rest):
            return trace
        chosen = [Choice(choice.slope[rest]) for choice in choices]
        other = pairs.together(sweep, rest).backward(objective.select(rest), chosen).plane
        better = trace.plane.select(rest).better(other)
        return replace(trace, plane=tree_map(lambda a, b: a.index_copy(0, rest, b), trace.plane, better))


def _closed(boxes: BoxDomains, found: Zonotopes, lower: Float[Tensor, "D C"]) -> BoxBounds:
    """Boxes all of whose clauses the forms close: nothing else is asked of them."""
    zero = torch.zeros_like(boxes.low)
    none = torch.zeros(0, dtype=torch.long, device=zero.device)
    evidence = BoxEvidence(none, none, found.l_hat, found.u_hat, zero.new_zeros(0, 1, 0), zero.new_zeros(0, 1), None)
    some = torch.ones(len(zero), dtype=torch.bool, device=zero.device)
    ends = boxes.low, boxes.high, boxes.low
    return BoxBounds(lower, closes(lower), some, *ends, zero, found.ambiguous, zero.new_zeros(len(zero)), evidence)


def _among(boxes: BoxDomains, known: BoxBounds, rows: Int[Tensor, " d"], swept: BoxBounds) -> BoxBounds:
    """What is known of boxes, with what sweeps have found for some of them; better bounds of forms stay."""

    def put(whole: Tensor, part: Tensor) -> Tensor:
        return whole.index_copy(0, rows, part.to(whole.dtype))

    lower = put(known.lower, torch.maximum(known.lower[rows], swept.lower))
    return BoxBounds(
        lower,
        closes(lower) & boxes.pending,
        put(known.some, swept.some),
        put(known.low, swept.low),
        put(known.high, swept.high),
        put(known.corner, swept.corner),
        put(known.gains, swept.gains),
        put(known.kinks, swept.kinks),
        put(known.doubt, swept.doubt),
        swept.evidence,
    )


def _clipped(
    pairs: Pairs, planes: Plane, pending: Bool[Tensor, " P"], care: Care
) -> tuple[Parents, Bool[Tensor, " D"], Clipping | None]:
    """What the planes of pending pairs leave of their boxes, whether they leave anything, and in which steps."""
    kept, boxes, known = torch.nonzero(pending).flatten(), pairs.boxes, pairs.known
    whole, of, slope, offset = (boxes.low, boxes.high), pairs.box[kept], planes.slope[kept], planes.offset[kept]
    if not care.followed:
        parts = clipped((known.low[kept], known.high[kept]), slope, offset, care.slack)
        return *hull(whole, parts, of), None
    steps = clipped_in_steps(whole, (slope, offset), of, care.slack)
    used = torch.zeros(planes.offset.shape, dtype=torch.bool, device=of.device).index_put((kept,), steps.used)
    some = torch.zeros(len(boxes), dtype=torch.bool, device=of.device).index_fill(0, of, value=True)
    return steps.boxes[-1], some, replace(steps, used=used)
