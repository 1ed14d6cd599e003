"""Networks in rational arithmetic, against an evaluation that shares no code with it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from rounding import random_case

from verifier.falsify.real import MOST_ENTRIES, RationalNetwork
from verifier.network.network import Affine, Network
from verifier.operators import Dense


def chain(layers: tuple[tuple[np.ndarray, np.ndarray], ...]) -> Network:
    made = []
    for k, (W, b) in enumerate(layers):
        bias = torch.from_numpy(b.astype(np.float64))
        term = Dense(torch.from_numpy(W.astype(np.float64)))
        made.append(Affine(f"layer{k}", (len(b),), ((k, term),), bias, torch.zeros_like(bias)))
    return Network((layers[0][0].shape[1],), tuple(made[:-1]), made[-1])


@pytest.mark.parametrize("seed", range(20))
def test_the_value_is_the_exact_one(seed: int) -> None:
    case, rng = random_case(seed), np.random.default_rng(seed)
    rational = RationalNetwork.of(chain(case.layers))
    assert rational is not None
    x = (rng.normal(size=len(case.box)) * 10.0 ** rng.integers(-300, 30)).tolist()
    assert rational.forward(x) == case.outputs([Fraction(v) for v in x])


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_all_kinds_of_maps_are_known(family: str) -> None:
    net = networks.FAMILIES[family](3)
    rational = RationalNetwork.of(net)
    assert rational is not None
    x = torch.linspace(-1, 1, net.n_in, dtype=torch.float64)
    found = [float(value) for value in rational.forward(x.tolist())]
    np.testing.assert_allclose(found, net.forward(x).numpy(), rtol=1e-13, atol=1e-13)


def test_weights_that_were_rounded_are_not_taken_as_exact() -> None:
    net = networks.dense(0)
    (source, term), last = net.output.terms[0], net.output
    rounded = replace(last, terms=((source, replace(term, roundings=1)),))
    assert RationalNetwork.of(replace(net, output=rounded)) is None
    folded = replace(last, bias_error=torch.full_like(last.bias, 1e-300))
    assert RationalNetwork.of(replace(net, output=folded)) is None


def test_large_networks_are_left_alone() -> None:
    side = int(MOST_ENTRIES**0.5) + 1
    wide = (np.ones((side, side), np.float32), np.zeros(side, np.float32))
    assert RationalNetwork.of(chain((wide,))) is None
