"""Affine expressions in the input and the outputs of groups: the values that the lowering computes with.

An expression is a tensor whose entries are `sum_j W_j x[j] + bias`, held as flat maps and vectors in
float64.  `error` bounds entrywise how far `bias` is from the exact sum that the weights define: every
operation below adds the rounding that it makes itself (docs/notation.md, "gamma").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from verifier.network.entries import rounds_nothing
from verifier.operators import Diagonal, LinearMap, Select, add, compose, gamma
from verifier.operators.base import FLOOR, flat_size
from verifier.shapes import Float64, Int, Tensor

MAX_ENTRIES = 1 << 24
"""Tensors beyond this size are refused: such a network cannot be bounded, and a damaged file may ask for any
size.
"""


def require_size(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise ValueError(f"a tensor of {entries} entries is too large")


@dataclass(frozen=True, eq=False)
class Expression:
    """A tensor of affine functions, flattened in C order.

    `nonnegative` is known, not guessed: True only for sums and selections of ReLU outputs that cannot go
    below 0.
    """

    shape: tuple[int, ...]
    terms: Mapping[int, LinearMap]
    bias: Float64[Tensor, " n"]
    error: Float64[Tensor, " n"]
    nonnegative: bool = field(default=False)

    @property
    def size(self) -> int:
        return self.bias.numel()

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def reshaped(self, shape: tuple[int, ...]) -> Expression:
        if flat_size(shape) != self.size:
            raise ValueError(f"{self.size} entries do not fill the shape {shape}")
        return replace(self, shape=shape)

    def positions(self) -> Int[Tensor, "..."]:
        """The numbers of the entries, in the expression's own shape: what moves them says what moves the entries."""
        return torch.arange(self.size).reshape(self.shape)

    def taken(self, index: Int[Tensor, "..."]) -> Expression:
        """The entries with these numbers, in the shape in which they are given; -1 stands for zero."""
        return select((self,), index.reshape(-1), tuple(index.shape))

    def expanded(self, shape: tuple[int, ...]) -> Expression:
        """Broadcast to `shape` as numpy does."""
        return self if shape == self.shape else self.taken(self.positions().expand(shape))

    def applied(self, outer: LinearMap, shape: tuple[int, ...], keeps_sign: bool = False) -> Expression:
        """`outer` of this expression.  `keeps_sign`: no entry of the matrix is negative."""
        require_size(outer.n_out)
        terms = {source: compose(outer, inner) for source, inner in self.terms.items()}
        bias = error = self.bias.new_zeros(outer.n_out)
        if bool(self.bias.any()):
            bias = outer.forward(self.bias)
            if not rounds_nothing(outer, self.bias):
                error = gamma(outer.depth) * outer.magnitude(self.bias.abs()) + FLOOR
        if bool(self.error.any()):
            error = error + outer.magnitude(self.error) + FLOOR
        return Expression(shape, terms, bias, error, keeps_sign and self.nonnegative)

    def scaled(self, factor: Float64[Tensor, " n"], roundings: int = 0) -> Expression:
        """Entrywise product with constants, which `roundings` operations have made inexact."""
        if not roundings and bool((factor == 1).all()):
            return self
        return self.applied(Diagonal(factor, roundings), self.shape, keeps_sign=bool((factor >= 0).all()))

    def negated(self) -> Expression:
        minus = Diagonal(-torch.ones(self.size, dtype=torch.float64))
        terms = {source: compose(minus, inner) for source, inner in self.terms.items()}
        return Expression(self.shape, terms, -self.bias, self.error)

    def plus(self, other: Expression) -> Expression:
        """The entrywise sum; both must have the same shape."""
        if self.shape != other.shape:
            raise ValueError(f"shapes {self.shape} and {other.shape} differ")
        terms = dict(self.terms)
        for source, term in other.terms.items():
            terms[source] = add(terms[source], term) if source in terms else term
        bias = self.bias + other.bias
        exact = (bias - self.bias == other.bias) & (bias - other.bias == self.bias)
        error = (self.error + other.error) * (1.0 + gamma(2)) + torch.where(exact, 0.0, gamma(1) * bias.abs() + FLOOR)
        return Expression(self.shape, terms, bias, error, self.nonnegative and other.nonnegative)

    def minus(self, other: Expression) -> Expression:
        return self.plus(other.negated())


def constant(values: Tensor, error: Tensor | None = None) -> Expression:
    """An expression without sources."""
    bias = values.detach().to(dtype=torch.float64, device="cpu").reshape(-1).contiguous()
    spread = torch.zeros_like(bias) if error is None else error.reshape(-1)
    nonnegative = not bool(spread.any()) and bool((bias >= 0).all())
    return Expression(tuple(values.shape), {}, bias, spread, nonnegative)


def variable(source: int, shape: tuple[int, ...], nonnegative: bool = False) -> Expression:
    """The network input (source 0) or the output of a group, as it is."""
    n = flat_size(shape)
    zeros = torch.zeros(n, dtype=torch.float64)
    return Expression(shape, {source: Select.identity(n)}, zeros, zeros, nonnegative)


def joined(parts: Sequence[Expression]) -> Expression:
    """Expressions of one shape, one after the other on a new first axis; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    if any(part.shape != parts[0].shape for part in parts):
        raise ValueError(f"shapes {[part.shape for part in parts]} differ")
    size = parts[0].size * len(parts)
    return select(parts, torch.arange(size), (len(parts), *parts[0].shape))


def select(
    parts: Sequence[Expression], index: Int[Tensor, " n"], shape: tuple[int, ...], fill: float = 0.0
) -> Expression:
    """Entries of the concatenation of `parts`, by position; -1 stands for the constant `fill`."""
    require_size(index.numel())
    terms: dict[int, LinearMap] = {}
    start = 0
    for part in parts:
        inside = (index >= start) & (index < start + part.size)
        if part.terms and bool(inside.any()):
            chosen = Select(torch.where(inside, index - start, -1), part.size)
            for source, inner in part.terms.items():
                term = compose(chosen, inner)
                terms[source] = add(terms[source], term) if source in terms else term
        start += part.size
    kept = index >= 0
    position = index.clamp(min=0)
    bias = torch.cat([part.bias for part in parts]) if start else torch.zeros(1, dtype=torch.float64)
    error = torch.cat([part.error for part in parts]) if start else torch.zeros(1, dtype=torch.float64)
    nonnegative = all(part.nonnegative for part in parts) and (fill >= 0 or bool(kept.all()))
    return Expression(
        shape,
        terms,
        torch.where(kept, bias[position], fill),
        torch.where(kept, error[position], 0.0),
        nonnegative,
    )
