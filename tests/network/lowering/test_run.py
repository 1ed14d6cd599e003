"""The lowering itself: exact pieces, no needless neurons, a sound account of rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from verifier.errors import InputError, UnsupportedOperator
from verifier.network.lowering.run import lower


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def lowered(function, shape):
    return lower(Apply(function), shape, {})


PIECES = {
    "relu": F.relu,
    "leaky": lambda x: F.leaky_relu(x, 0.125),
    "leaky-negative": lambda x: F.leaky_relu(x, -0.5),
    "leaky-steep": lambda x: F.leaky_relu(x, 2.0**20),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.25, -0.5, 2.0], dtype=x.dtype)),
    "abs": torch.abs,
    "clip": lambda x: x.clamp(-0.5, 0.75),
    "clip-low": lambda x: x.clamp(min=0.25),
    "clip-high": lambda x: x.clamp(max=0.25),
    "clip-tensor": lambda x: torch.clamp(x, torch.linspace(-1, 0, 8), torch.linspace(0, 1, 8)),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "max-constant": lambda x: torch.maximum(x, torch.tensor(0.5)),
    "min-constant": lambda x: torch.minimum(torch.tensor(0.5), x),
    "min-far": lambda x: torch.minimum(x, torch.tensor([1e30, 0.5] * 4)),
    "max-activations": lambda x: torch.maximum(x, x.flip(-1)),
    "min-activations": lambda x: torch.min(x, 0.5 * x.roll(1, 2)),
    "max-axis": lambda x: torch.max(x, dim=1)[0],
    "min-all": torch.min,
    "amax": lambda x: x.amax(dim=(1, 3), keepdim=True),
    "maxpool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "maxpool-overlap": lambda x: F.max_pool2d(x, 3, 1),
    "maxpool-dilated": lambda x: F.max_pool2d(x, 2, 3, 1, dilation=2, ceil_mode=True),
    "maxpool-ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_exact(name):
    function = PIECES[name]
    network = lowered(function, (1, 3, 8, 8))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, 8, 8, generator=generator, dtype=torch.float64) * 2
    for point in x:
        expected = function(point[None]).reshape(-1)
        found = network.forward(point.reshape(-1))
        assert (found - expected).abs().max() <= 1e-12 * (1 + expected.abs().max())


RELUS = {
    "same value twice": (lambda x: F.relu(x) + F.relu(x), 4),
    "relu of relu": (lambda x: F.relu(F.relu(x)), 4),
    "relu of a reshaped relu": (lambda x: F.relu(F.relu(x).reshape(2, 2).T), 4),
    "relu of a sum of relus": (lambda x: F.relu(F.relu(x) + 2 * F.relu(-x)), 8),
    "relu of an average": (lambda x: F.relu(F.avg_pool1d(F.relu(x), 2)), 4),
    "relu of a max pool of relus": (lambda x: F.relu(F.max_pool1d(F.relu(x), 2)), 4 + 2),
    "leaky of relu": (lambda x: F.leaky_relu(F.relu(x)), 4),
    "abs of relu": (lambda x: F.relu(x).abs(), 4),
    "clip to 0..6 of relu": (lambda x: F.relu(x).clamp(0, 6), 8),
    "leaky": (lambda x: F.leaky_relu(x, 0.25), 4),
    "abs": (torch.abs, 4),
    "clip": (lambda x: x.clamp(-1, 1), 8),
    "clip from below": (lambda x: x.clamp(min=-1), 4),
    "relu of a constant": (lambda x: x + F.relu(torch.tensor([1.0, -1.0, 2.0, 0.0])), 0),
    "not below zero by a bias": (lambda x: F.relu(F.relu(x) - 1), 8),
}


@pytest.mark.parametrize("name", RELUS)
def test_no_needless_neurons(name):
    function, count = RELUS[name]
    network = lowered(function, (1, 4))
    assert network.relus == count
    x = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    expected = torch.stack([function(point[None]).reshape(-1) for point in x])
    torch.testing.assert_close(network.forward(x), expected, rtol=1e-12, atol=1e-12)


def test_in_place_functions_change_their_operand():
    def function(x):
        y = x + 1
        F.relu(y, inplace=True)
        y += x
        y.mul_(2.0)
        return y

    x = torch.randn(9, 3, dtype=torch.float64)
    torch.testing.assert_close(lowered(function, (1, 3)).forward(x), function(x))


def test_a_flatten_costs_nothing_and_scales_fold_into_weights():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    network = lower(module, (1, 3, 8, 8), {})
    kinds = [[type(term).__name__ for _, term in layer.terms] for layer in network.layers]
    assert kinds == [["Conv"], ["Dense"]]


def test_a_transpose_before_a_matrix_folds_into_it():
    weight = torch.randn(5, 24)
    network = lowered(lambda x: F.linear(F.relu(x).permute(0, 2, 3, 1).flatten(1), weight), (1, 2, 3, 4))
    assert [type(term).__name__ for _, term in network.output.terms] == ["Dense"]


@given(st.integers(0, 10**6))
def test_bias_error_bounds_the_exact_bias(seed):
    """An affine chain at x = 0, in rational arithmetic: the folded bias is within its own error bound."""
    r = np.random.default_rng(seed)
    w1, w2 = r.normal(size=(4, 3)).astype(np.float32), r.normal(size=(3, 4)).astype(np.float32)
    b1, b2 = r.normal(size=4).astype(np.float32), r.normal(size=3).astype(np.float32)
    scale, divisor = r.normal(size=4).astype(np.float32), (r.normal(size=3) ** 2 + 0.1).astype(np.float32)

    def function(x):
        hidden = F.linear(x, torch.from_numpy(w1), torch.from_numpy(b1)) * torch.from_numpy(scale)
        return F.linear(hidden.mean() + hidden, torch.from_numpy(w2), torch.from_numpy(b2)) / torch.from_numpy(divisor)

    layer = lowered(function, (1, 3)).output
    hidden = [Fraction(float(b)) * Fraction(float(s)) for b, s in zip(b1, scale, strict=True)]
    shifted = [h + sum(hidden) / 4 for h in hidden]
    for i in range(3):
        exact = sum(Fraction(float(w)) * h for w, h in zip(w2[i], shifted, strict=True)) + Fraction(float(b2[i]))
        exact /= Fraction(float(divisor[i]))
        distance = abs(exact - Fraction(float(layer.bias[i])))
        assert distance <= Fraction(float(layer.bias_error[i]))
        assert layer.bias_error[i] <= 1e-12


@given(st.integers(0, 10**6))
def test_rounding_of_a_product_alone_is_counted(seed):
    """No addition after the product: only the product's own rounding can explain the distance."""
    r = np.random.default_rng(seed)
    bias, weight = r.normal(size=30).astype(np.float32), r.normal(size=(2, 30)).astype(np.float32)
    layer = lowered(lambda x: F.linear(x + torch.from_numpy(bias), torch.from_numpy(weight)), (1, 30)).output
    for i in range(2):
        exact = sum(Fraction(float(w)) * Fraction(float(b)) for w, b in zip(weight[i], bias, strict=True))
        assert abs(exact - Fraction(float(layer.bias[i]))) <= Fraction(float(layer.bias_error[i]))


W = torch.arange(12.0).reshape(3, 4) / 7
SPELLINGS = {
    "1 - x": lambda x: 1 - x,
    "x - 1": lambda x: x - 1,
    "1 + x": lambda x: 1 + x,
    "3 * x": lambda x: 3 * x,
    "x / 3": lambda x: x / 3,
    "-x": lambda x: -x,
    "torch.sub alpha": lambda x: torch.sub(x, x.flip(1), alpha=0.5),
    "torch.rsub": lambda x: torch.rsub(x, 2.0),
    "torch.add alpha": lambda x: torch.add(W[0], x, alpha=2),
    "x @ w": lambda x: x @ W.T.to(x.dtype),
    "w @ x": lambda x: W.to(x.dtype) @ x.T,
    "mv": lambda x: torch.mv(W.to(x.dtype), x[0]),
    "addmm": lambda x: torch.addmm(torch.ones(3, dtype=x.dtype), x, W.T.to(x.dtype), beta=2, alpha=0.5),
    "getitem": lambda x: x[:, [3, 0]] - x[:, None, 1],
    "stack": lambda x: torch.stack([x, torch.ones_like(x), x.flip(1)], dim=1).sum(dim=1),
    "expand_as": lambda x: x + torch.tensor([2.0]).expand_as(x) + x[:, :1].expand_as(x),
    "where": lambda x: torch.where(torch.tensor([True, False, True, False]), x, 2 * x),
    "split": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "unfold": lambda x: x.unfold(1, 2, 1).mean(dim=-1),
    "pad": lambda x: F.pad(x, (1, 2), value=3.0),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_ways_to_write_affine_functions(name):
    function = SPELLINGS[name]
    network = lowered(function, (1, 4))
    assert network.relus == 0
    x = torch.randn(5, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for point in x:
        torch.testing.assert_close(network.forward(point[0]), function(point).reshape(-1), rtol=1e-12, atol=1e-12)


def test_batch_norm_error_is_accounted_for():
    norm = nn.BatchNorm1d(3).eval()
    nn.init.normal_(norm.weight)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 2)
    layer = lower(norm, (1, 3), {}).output
    assert bool((layer.bias_error > 0).all())
    assert bool((layer.bias_error < 1e-13).all())
    assert layer.terms[0][1].depth >= 4  # sum, root, quotient, product


UNSUPPORTED = {
    "log of gamma": torch.lgamma,
    "sinh": torch.sinh,
    "exponent": lambda x: 2.0**x,
    "comparison": lambda x: x > 0,
    "value": lambda x: x * x.sum().item(),
    "branch": lambda x: x if x.sum() > 0 else -x,
    "argmax": torch.argmax,
    "modulus": lambda x: x % 2,
    "round": lambda x: x.to(torch.int64),
    "half": lambda x: x.to(torch.float16),
    "index": lambda x: torch.arange(4.0)[x.argmax()],
    "write": lambda x: torch.zeros(1, 4).copy_(x),
    "training dropout": lambda x: F.dropout(x, training=True),
    "batch statistics": lambda x: F.batch_norm(x.expand(2, 4), None, None, training=True),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_functions_are_refused(name):
    with pytest.raises(UnsupportedOperator) as caught:
        lowered(UNSUPPORTED[name], (1, 4))
    assert "Relu" in caught.value.supported
    assert "\n" not in str(caught.value)


def test_errors_name_the_submodule():
    module = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.LogSigmoid()))
    with pytest.raises(UnsupportedOperator, match=r"'1\.1' of type LogSigmoid"):
        lower(module, (1, 3), {})
    with pytest.raises(InputError, match="'0' of type Linear cannot be evaluated"):
        lower(module, (1, 4), {})


def test_division_by_zero():
    with pytest.raises(InputError, match="divides by zero"):
        lowered(lambda x: x / torch.tensor([1.0, 0.0]), (1, 2))
