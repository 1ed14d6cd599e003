"""The network as the verifier sees it: a DAG of affine layers and groups of neurons on flat vectors.

In the notation of docs/notation.md, for k = 1..K:

    x_hat[k] = sum_j W[k, j] x[j] + b[k],    x[k] = f_k(x_hat[k]),    y = sum_j W[y, j] x[j] + b[y]

with x[0] the input and f_k a ReLU or another function (`verifier.functions`).  Weights are held in float64, exactly as
the file gives them; `to` makes a float32 copy for the parts of a run that only search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from verifier.functions import RELU, Function
from verifier.operators import LinearMap
from verifier.operators.alike import Alike, alike
from verifier.operators.base import flat_size
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Affine:
    """x_hat = sum of W_j x[j] over `terms` (j, W_j), plus `bias`; then, in a group, x = function(x_hat).

    `bias_error` bounds entrywise how far `bias` is from the exact sum that the file's weights define.
    """

    name: str
    shape: tuple[int, ...]
    terms: tuple[tuple[int, LinearMap], ...]
    bias: Float[Tensor, " n"]
    bias_error: Float[Tensor, " n"]
    function: Function = RELU

    def __post_init__(self) -> None:
        sources = [source for source, _ in self.terms]
        if len(set(sources)) != len(sources):
            raise ValueError(f"layer {self.name} names a source twice")
        for source, term in self.terms:
            if term.n_out != self.size:
                raise ValueError(f"layer {self.name}: source {source} gives {term.n_out} of {self.size} entries")
        if flat_size(self.shape) != self.size:
            raise ValueError(f"layer {self.name}: shape {self.shape} does not hold {self.size} entries")
        if self.size % self.function.arity:
            raise ValueError(f"layer {self.name}: {self.function.name} cannot take {self.size} entries")

    @property
    def size(self) -> int:
        return self.bias.numel()

    @property
    def neurons(self) -> int:
        """Entries of x, if the layer is a group."""
        return self.size // self.function.arity

    @property
    def depth(self) -> int:
        """Rounding depth of the whole sum, for `gamma`."""
        return max((term.depth for _, term in self.terms), default=0) + len(self.terms) + 1

    @property
    def inputs(self) -> int:
        """Entries of all sources that it reads."""
        return sum(term.n_in for _, term in self.terms)

    @property
    def work(self) -> int:
        """Multiplications at one point, roughly; known without running anything."""
        terms = [term for _, term in self.terms]
        return sum(max(term.parameters, (1 + term.depth) * min(term.n_in, term.n_out)) for term in terms)

    @property
    def exact(self) -> bool:
        """Whether the interval image of a box of the input is exact: nothing is read but the input, and by one map."""
        return all(source == 0 and term.tight for source, term in self.terms)

    @cached_property
    def alike(self) -> Alike | None:
        """Which entries of x_hat are the same, or the same with the other sign; None if all differ."""
        return alike([term for _, term in self.terms], self.bias, self.bias_error)

    def forward(self, x: Sequence[Float[Tensor, "*batch _"] | None]) -> Float[Tensor, "*batch n"]:
        """The layer's value, given the value of every source."""
        total = self.bias
        for source, term in self.terms:
            value = x[source]
            assert value is not None, f"layer {self.name} needs source {source}, which is gone"
            total = total + term.forward(value)
        return total

    def pull(self, mu: Float[Tensor, "*batch n"], lam: list[Tensor | None]) -> None:
        """Take multipliers of x_hat back through the map: they add to those of the sources, `lam`; None is zero."""
        for source, term in self.terms:
            part = term.transpose(mu)
            known = lam[source]
            lam[source] = part if known is None else known + part

    def to(self, device: torch.device | str | None, dtype: torch.dtype | None) -> Affine:
        return replace(
            self,
            terms=tuple((source, term.to(device, dtype)) for source, term in self.terms),
            bias=self.bias.to(device=device, dtype=dtype),
            bias_error=self.bias_error.to(device=device, dtype=dtype),
        )


@dataclass(frozen=True, eq=False)
class Network:
    """Groups of neurons 1..K in topological order (`groups[k - 1]` is group k), and the output layer.

    It is what the file defines while no activation is larger than `within` (bounds of Clip at the end of the range of
    floats are left out).  `head` is the function that it ends with, if it may be left out of some properties.
    """

    input_shape: tuple[int, ...]
    groups: tuple[Affine, ...]
    output: Affine
    within: float = math.inf
    head: Head | None = None

    def __post_init__(self) -> None:
        sizes = [self.n_in, *(group.neurons for group in self.groups)]
        for k, layer in enumerate(self.layers, start=1):
            for source, term in layer.terms:
                if not 0 <= source < k:
                    raise ValueError(f"layer {layer.name} (number {k}) takes source {source}, which comes later")
                if term.n_in != sizes[source]:
                    raise ValueError(
                        f"layer {layer.name}: source {source} has {sizes[source]} entries, not {term.n_in}"
                    )

    @property
    def n_in(self) -> int:
        return flat_size(self.input_shape)

    @property
    def n_out(self) -> int:
        return self.output.size

    @property
    def layers(self) -> tuple[Affine, ...]:
        """All affine layers: the groups and, last, the output."""
        return (*self.groups, self.output)

    @property
    def neurons(self) -> int:
        """Of all groups."""
        return sum(group.neurons for group in self.groups)

    @property
    def relus(self) -> int:
        return sum(group.size for group in self.groups if group.function.is_relu)

    @property
    def piecewise_linear(self) -> bool:
        """Whether all groups are ReLUs."""
        return all(group.function.is_relu for group in self.groups)

    @property
    def bent(self) -> str | None:
        """The first group that is not one of ReLUs, in words; None if there is none."""
        for k, group in enumerate(self.groups, start=1):
            if not group.function.is_relu:
                return f"group {k} of the network ('{group.name}') applies {group.function.name}"
        return None

    @property
    def parameters(self) -> int:
        return sum(layer.bias.numel() + sum(t.parameters for _, t in layer.terms) for layer in self.layers)

    @property
    def work(self) -> int:
        """Multiplications of one forward pass at one point, roughly; known without running anything."""
        return sum(layer.work for layer in self.layers)

    @property
    def last_use(self) -> tuple[int, ...]:
        """For every source j = 0..K the number of the last layer (1..K+1) that reads it; 0 if none does."""
        last = [0] * (len(self.groups) + 1)
        for k, layer in enumerate(self.layers, start=1):
            for source, _ in layer.terms:
                last[source] = k
        return tuple(last)

    def forward(self, x: Float[Tensor, "*batch n0"]) -> Float[Tensor, "*batch n_y"]:
        """The network's output; values are dropped as soon as no later layer reads them."""
        values: list[Tensor | None] = [x]
        last = self.last_use
        for k, layer in enumerate(self.layers, start=1):
            x_hat = layer.forward(values)
            for source, _ in layer.terms:
                if last[source] == k:
                    values[source] = None
            values.append(layer.function.value(x_hat) if k <= len(self.groups) else x_hat)
        result = values[-1]
        assert result is not None
        return result.expand(*x.shape[:-1], self.n_out)

    def preactivations(self, x: Float[Tensor, "*batch n0"]) -> list[Float[Tensor, "*batch _"]]:
        """x_hat of every group, and last the output."""
        values: list[Tensor | None] = [x]
        found = []
        for layer in self.layers:
            x_hat = layer.forward(values).expand(*x.shape[:-1], layer.size)
            found.append(x_hat)
            values.append(layer.function.value(x_hat) if layer is not self.output else None)
        return found

    def vjp(
        self, preactivations: Sequence[Float[Tensor, "*batch _"]], cotangent: Float[Tensor, "*batch n_y"]
    ) -> Float[Tensor, "*batch n0"]:
        """The gradient of <cotangent, y> with respect to the input, at the point that gave `preactivations`.

        Written out instead of using autograd: one transposed pass, no graph.
        """
        lam: list[Tensor | None] = [None] * (len(self.groups) + 1)
        self.output.pull(cotangent, lam)
        for k in range(len(self.groups), 0, -1):
            own, lam[k] = lam[k], None
            if own is not None:
                group = self.groups[k - 1]
                group.pull(group.function.pull(preactivations[k - 1], own), lam)
        return cotangent.new_zeros(*cotangent.shape[:-1], self.n_in) if lam[0] is None else lam[0]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Network:
        return replace(
            self,
            groups=tuple(group.to(device, dtype) for group in self.groups),
            output=self.output.to(device, dtype),
        )


@dataclass(frozen=True, eq=False)
class Head:
    """What a network ends with: y = h(t), where t is the output of the network `bare`, in the same order.

    `name` is the operator.  Outputs with the same number in `members` are normalised together, if that is what it does.
    """

    name: str
    bare: Network
    members: Int[Tensor, " n_y"]
