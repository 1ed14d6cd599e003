"""A zonotope over the few inputs that move, group by group, which also goes on from bounds that others have found.

Spreads are nearly all of its work, and float32 makes that six times cheaper.  But each layer magnifies what was rounded
before it by the size of its rows, about tenfold: rounded from the first layer on, a deep network is lost in errors
after five.  So the first layers are made in float64, until what is rounded from there on stays small to the end;
centres and errors, one vector each, always are.

requires:   boxes in float64
guarantees: the ends that it narrows enclose the exact pre-activations
"""

from __future__ import annotations

import math

import torch

from verifier.bounding.relaxation.form import AffineForm, growth
from verifier.bounding.relaxation.zonotope import Forms, fits_single, symbols_of, symbols_within
from verifier.network.network import Affine, Network
from verifier.shapes import Float, Int, Tensor

FEW_MOVING = 64
"""Inputs that may move for a zonotope over them."""

STILL = 2.0**-20
"""Inputs whose width is a smaller share of the largest one do not move: decimals that are no floats."""

INPUTS = 16
"""By how many times the symbols of inputs alone may exceed the memory of one call."""

QUICK_WORK, THOROUGH_WORK = 4e9, 1.2e11
"""Multiplications of a zonotope for a first look, and of one that others rely on: what is left of them after its inputs
goes to symbols of neurons."""

MEMORY_SHARE = 4
"""How many times more memory a thorough zonotope may take than one call of a bounder: it is there once."""

MAGNIFIED = 8.0
"""The roundings of a layer may grow to this, in units of radii before it, by crude sizes of the layers behind it."""

Ends = tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]


class Forward:
    """The zonotope: `narrowed` and `enter` for each group in turn.

    A quick one works in float32 from the first layer on and has few symbols.
    """

    def __init__(self, net: Network, box: Ends, moving: Int[Tensor, " m"], memory_bytes: int, thorough: bool) -> None:
        self._net, self._forms = net, Forms(*box, torch.float64, moving)
        self._single = net.to(dtype=torch.float32) if fits_single(net) else None
        self._rounds = first_rounded(net) if thorough else 1
        self._form: AffineForm | None = None
        self._boxes = max(1, len(box[0]))
        self._memory = memory_bytes * (MEMORY_SHARE if thorough else 1)
        self._work = THOROUGH_WORK - len(moving) * net.work * self._boxes
        self._most: int | None = None
        if not thorough:
            symbols = min(int(QUICK_WORK / max(net.work * self._boxes, 1)), symbols_of(net, self._boxes, memory_bytes))
            self._most = symbols_within(net, symbols, len(moving))

    @classmethod
    def begin(cls, net: Network, box: Ends, memory_bytes: int, thorough: bool = True) -> Forward | None:
        """None if too many inputs move, for the time that they take or for the memory."""
        moving = inputs_that_move(box)
        room = INPUTS * symbols_of(net, len(box[0]), memory_bytes)
        return cls(net, box, moving, memory_bytes, thorough) if len(moving) <= min(FEW_MOVING, room) else None

    def exact(self, k: int) -> bool:
        """Whether nothing but rounding in float64 keeps the bounds of group k from being exact."""
        return k < self._rounds and all(source == 0 for source, _ in self._net.groups[k - 1].terms)

    def narrowed(self, k: int, ends: Ends) -> Ends:
        """The better ones of the ends of group k, and those of its form."""
        rough: Affine | None = None
        if self._single is not None and k >= self._rounds:
            self._forms.round_spreads(torch.float32)
            rough = self._single.groups[k - 1]
        self._form, (low, high) = self._forms.image(self._net.groups[k - 1], rough)
        return torch.where(low > ends[0], low, ends[0]), torch.where(high < ends[1], high, ends[1])

    def enter(self, k: int, ends: Ends, gone: list[int]) -> None:
        """Group k has these bounds; nobody reads the sources that are `gone` after it."""
        assert self._form is not None
        before = self._forms.symbols
        self._forms.enter(self._net.groups[k - 1].function, self._form, ends, self._room(k))
        self._work -= (self._forms.symbols - before) * self._rest(k) * self._boxes
        self._form = None
        for source in gone:
            self._forms.drop(source)

    def _room(self, k: int) -> int:
        """How many symbols group k may add: for half of the work that is left, and as many as fit into memory."""
        if self._most is not None:
            return self._most
        each = 2 * 8 * self._boxes * max(layer.size for layer in self._net.layers[k - 1 :])
        work = int(self._work / (2 * self._rest(k) * self._boxes))
        return max(0, min(work, self._memory // each - self._forms.symbols))

    def _rest(self, k: int) -> int:
        """Multiplications for each symbol of group k."""
        return max(1, sum(layer.work for layer in self._net.layers[k:]))


def inputs_that_move(box: Ends) -> Int[Tensor, " m"]:
    """Those that do in some box."""
    width = box[1] - box[0]
    return torch.nonzero((width > STILL * width.amax(dim=1, keepdim=True)).any(dim=0)).flatten()


def first_rounded(net: Network) -> int:
    """The first group from which on float32 suffices for spreads; one more than there are groups, if it never does."""
    sizes = [_row_size(layer) for layer in net.layers]
    for k, layer in enumerate(net.groups, start=1):
        if growth(layer.depth, torch.float32) * math.prod(sizes[k : len(net.groups)]) <= MAGNIFIED:
            return k
    return len(net.groups) + 1


def _row_size(layer: Affine) -> float:
    """The sum of the weights of a row without their signs, on average."""
    ones = (term.magnitude(layer.bias.new_ones(1, term.n_in)) for _, term in layer.terms)
    return float(sum(size.mean() for size in ones))


def influences(net: Network, box: Ends) -> tuple[Int[Tensor, " m"], Float[Tensor, " m"]]:
    """The inputs that move, and what part of all that moves the neurons of the first group is due to each of them."""
    moving = inputs_that_move(box)
    form, _ = Forms(*box, torch.float64, moving).image(net.groups[0])
    size = form.spread.abs().sum(dim=(1, 2))
    return moving, size / size.sum().clamp(min=torch.finfo(size.dtype).tiny)
