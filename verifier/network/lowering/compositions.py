"""What is composed of products and of functions of one number: powers, softmax, normalisation by its own entries.

    softmax_i      = 1 / (1 + sum over j != i of exp(t_j - t_i))        log_softmax_i = -log(the same sum)
    layer_norm(x)  = (x - mean) (variance + eps)^(-1/2)

Softmax by differences needs an exponential for every pair of entries, but no product: every value stays between 0 and
1 whatever the bounds of t, and what all entries have in common cancels before anything is relaxed.  Of two entries it
is a sigmoid.
"""

from __future__ import annotations

from typing import Any

import torch

from verifier.functions import Function
from verifier.functions.names import FUNCTIONS
from verifier.network.lowering.affine import add, broadcast, grouped, matmul, mean, mul, sub, times, total
from verifier.network.lowering.expression import Expression, constant, select
from verifier.network.lowering.tracing import Lowering, Normalisation, lowers
from verifier.operators import Diagonal, Select, compose
from verifier.operators import add as sum_of_maps


def power_of(exponent: float) -> Function:
    """t ** exponent."""
    return FUNCTIONS.build("Pow", {"exponent": exponent})


@lowers("pow", "float_power")
def power(low: Lowering, input: Any, exponent: Any) -> Expression:
    """One group for every exponent that there is."""
    if not low.is_constant(exponent):
        low.refuse("its exponent depends on the input")
    value, exponents = broadcast(low.value(input), constant(low.number(exponent)))
    parts: list[Expression] = []
    index = torch.zeros(value.size, dtype=torch.long)
    for number in exponents.bias.unique().tolist():
        places = torch.nonzero(exponents.bias == number).flatten()
        index[places] = torch.arange(len(places)) + sum(part.size for part in parts)
        part = value if len(places) == value.size else value.taken(places)
        parts.append(_single_power(low, part, number))
    return parts[0] if len(parts) == 1 else select(parts, index, value.shape)


lowers("rpow")(lambda low, input, base: power(low, base, input))


def _single_power(low: Lowering, value: Expression, exponent: float) -> Expression:
    if exponent == 0:
        return constant(torch.ones(value.shape))
    return value if exponent == 1 else low.apply(power_of(exponent), value)


# -- softmax -------------------------------------------------------------------------------------------------


def _gaps(low: Lowering, value: Expression, dim: int) -> Expression:
    """t_j - t_i in the shape [*value.shape, n - 1], i being the entry and j all others on the axis `dim`."""
    rows, _ = grouped(value, dim, True)
    n = rows.shape[1]
    others = torch.tensor([[j for j in range(n) if j != i] for i in range(n)], dtype=torch.long).reshape(n, n - 1)
    place = rows.flatten().argsort()  # of the entries of `value` among those of `rows`
    there, here = rows[:, others].reshape(-1, n - 1)[place], rows.flatten()[place].unsqueeze(1).expand(-1, n - 1)
    minus = Diagonal(-torch.ones(here.numel(), dtype=torch.float64))
    difference = sum_of_maps(
        Select(there.reshape(-1), value.size), compose(minus, Select(here.reshape(-1), value.size))
    )
    return value.applied(difference, (*value.shape, n - 1))


def _odds(low: Lowering, value: Expression, dim: int) -> Expression:
    """1 / softmax."""
    return add(low, total(low, low.apply(FUNCTIONS.build("Exp"), _gaps(low, value, dim)), -1), 1.0)


def _noted(low: Lowering, operator: str, value: Expression, axis: int, sign: int) -> None:
    """The last group is that of a softmax: if the network ends with it, a property may not need it."""
    rows, _ = grouped(value, axis, True)
    members = torch.empty(value.size, dtype=torch.long)
    members[rows.flatten()] = torch.arange(rows.shape[0]).repeat_interleave(rows.shape[1])
    low.normalised[len(low.groups)] = Normalisation(operator, value, members, sign)


def _axis(value: Expression, dim: Any) -> tuple[int, int]:
    """The axis along which softmax is taken, and its length; torch has a default for it, but warns of it."""
    rank = len(value.shape)
    axis = (0 if rank in {0, 1, 3} else 1) if dim is None else int(dim) % max(rank, 1)
    return axis, value.shape[axis] if rank else 1


@lowers("softmax")
def softmax(low: Lowering, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Expression:
    value = low.value(input)
    axis, n = _axis(value, dim)
    if n == 1:
        return constant(torch.ones(value.shape))
    if n == 2:
        gap = _gaps(low, value, axis).negated().reshaped(value.shape)
        found = low.apply(FUNCTIONS.build("Sigmoid"), gap)
    else:
        found = low.apply(FUNCTIONS.build("Reciprocal"), _odds(low, value, axis))
    _noted(low, "Softmax", value, axis, 1)
    return found


@lowers("log_softmax")
def log_softmax(low: Lowering, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Expression:
    value = low.value(input)
    axis, n = _axis(value, dim)
    if n == 1:
        return constant(torch.zeros(value.shape))
    found = low.apply(FUNCTIONS.build("Log"), _odds(low, value, axis)).negated()
    _noted(low, "LogSoftmax", value, axis, -1)
    return found


# -- normalisation -------------------------------------------------------------------------------------------


@lowers("layer_norm")
def layer_norm(
    low: Lowering, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Expression:
    value = low.value(input)
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    centred = sub(low, value, mean(low, value, axes, True))
    variance = mean(low, mul(low, centred, centred), axes, True)
    scale = low.apply(power_of(-0.5), add(low, variance, float(low.number(eps))))
    found = mul(low, centred, scale)
    found = found if weight is None else mul(low, found, weight)
    return found if bias is None else add(low, found, bias)


@lowers("scaled_dot_product_attention")
def attention(  # noqa: PLR0913 (torch's own signature)
    low: Lowering,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expression:
    if attn_mask is not None or dropout_p or is_causal or enable_gqa:
        low.refuse("it masks, drops or shares entries")
    keys = low.value(key)
    scores = matmul(low, query, keys.taken(keys.positions().mT))
    factor = keys.shape[-1] ** -0.5 if scale is None else scale
    return matmul(low, softmax(low, times(scores, factor, roundings=2), -1), value)
