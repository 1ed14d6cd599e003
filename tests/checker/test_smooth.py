"""The inequality for networks with smooth functions and products, and rules that hold for ReLUs only."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from checker.building import ALL, close, default, merged_group, merged_output, repeats, section, witness, write_proof
from checker.building import values as numbers
from checker.smooth import COMPOSED, KINDS, Files, model, random_model, values
from checker.test_graph import require_same

from verifier.checker.check import ACCEPTED, REJECTED, UNREADABLE, check
from verifier.checker.graph import read_network
from verifier.checker.inequality import Choice, Choose, Target, plane
from verifier.checker.network import Network
from verifier.checker.nodes import Default
from verifier.checker.proving import Setting
from verifier.checker.scope import Scope


def scope_of(net: Network, low: np.ndarray, high: np.ndarray) -> Scope:
    (judged,) = Default(1, 17).judged(Setting(net, []), [None], [Scope.start(net, low, high)])
    return judged.scopes[0]


def multipliers(net: Network, scope: Scope, rng: np.random.Generator) -> Choose:
    """Some near good ones, others anywhere."""

    def choose(k: int, r: np.ndarray) -> Choice:
        function, n = net.layers[k - 1].function, net.layers[k - 1].size
        if function.bends_at_zero:
            return r * rng.random(r.shape), []
        _, slope, _ = function.fan((scope.lower[k - 1], scope.upper[k - 1]), r)
        near = np.tile(r, (1, function.arity)) * slope * rng.choice([1.0, 1.0, 0.0, -2.0], (len(r), n))
        return near + rng.normal(size=(len(r), n)) * rng.choice([0.0, 0.0, 1.0], (len(r), n)), []

    return choose


@functools.cache
def compared(seed: int, kind: str | None = None) -> tuple[int, bool]:
    """How many of twelve bounds are finite, and whether all of them, and those of neurons, hold at 10,000 points."""
    made = random_model(seed) if kind is None else model(np.random.default_rng(seed), 2, (kind, "Relu"))
    net, _ = read_network(made.SerializeToString())
    rng, rows = np.random.default_rng(seed), 12
    low, high = -np.ones(net.n_in), np.ones(net.n_in)
    q, none, zero = np.ones((rows, 1)), np.zeros((rows, net.n_in)), np.zeros(rows)
    target = Target(len(net.layers), q, q, none, none, zero, zero, 1)
    with np.errstate(all="ignore"):
        scope = scope_of(net, low, high)
        least = plane(net, scope, target, multipliers(net, scope, rng))[0].least(low[None], high[None])
    x = rng.uniform(-1, 1, (10_000, net.n_in))
    *neurons, output = values(net, np.concatenate([x, np.sign(x[:100])]))
    holds = bool((least <= output.min()).all())
    for t, below, above in zip(neurons, scope.lower, scope.upper, strict=True):
        slack = 1e-12 * (1 + np.abs(t))
        holds &= bool(((below <= t + slack) & (t <= above + slack)).all())
    return int(np.isfinite(least).sum()), holds


SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_multipliers_the_bound_is_below_all_values(seed: int) -> None:
    assert compared(seed)[1]


def test_most_of_these_bounds_say_something() -> None:
    assert sum(compared(seed)[0] for seed in SEEDS) > 0.8 * 12 * len(SEEDS)


@pytest.mark.parametrize("kind", COMPOSED)
def test_bounds_of_compositions_hold_too(kind: str) -> None:
    found = [compared(seed, kind) for seed in range(4)]
    assert all(holds for _, holds in found)
    assert sum(finite for finite, _ in found) > 0.5 * 12 * len(found)


@pytest.mark.parametrize("kind", [*KINDS, *COMPOSED])
def test_both_readers_have_the_same_neurons(tmp_path: Path, kind: str) -> None:
    files = Files.of(tmp_path, model(np.random.default_rng(0), 3, (kind, "Relu", kind)), 1.0)
    require_same(files.network)


def judged(tmp_path: Path, files: Files, body: bytes, merged: bytes | None = None, exact: bool = False) -> str:
    proof = write_proof(tmp_path / "proof", files.network, files.prop, body, merged=merged)
    return check(str(files.network), str(files.prop), str(proof), exact).verdict


SIGMOIDS = model(np.random.default_rng(5), 2, ("Sigmoid", "Sigmoid"))
RIGHT = ALL + default() + close(0)


def test_a_proof_without_numbers_and_rational_arithmetic(tmp_path: Path) -> None:
    files = Files.of(tmp_path, SIGMOIDS, 3.0)
    assert judged(tmp_path, files, RIGHT) == ACCEPTED
    assert judged(tmp_path, files, RIGHT, exact=True) == UNREADABLE
    files.write(-0.1)
    assert judged(tmp_path, files, RIGHT) == REJECTED


def test_what_is_known_of_relus_only_is_rejected(tmp_path: Path) -> None:
    files = Files.of(tmp_path, SIGMOIDS, 3.0)
    net, _ = read_network(files.network.read_bytes())
    first, second = (layer.size for layer in net.layers[:2])
    alone = [merged_group({}, range(n), False) for n in (first, second)]
    assert judged(tmp_path, files, RIGHT, alone[0] + alone[1] + merged_output(False)) == ACCEPTED
    twice = merged_group({1: repeats(0)}, [i for i in range(first) if i != 1], False)
    assert judged(tmp_path, files, RIGHT, twice + alone[1] + merged_output(False)) == REJECTED
    cut = b"\0" + ALL + ALL + b"\1" + numbers(np.zeros(second))
    body = ALL + default() + close(0, witness=witness([section(2, cuts=[cut])]))
    assert judged(tmp_path, files, body) == REJECTED


def test_a_neuron_is_divided_at_a_number(tmp_path: Path) -> None:
    files = Files.of(tmp_path, SIGMOIDS, 3.0)
    for value, verdict in ((0.25, ACCEPTED), (np.nan, REJECTED), (np.inf, REJECTED)):
        node = bytes([12, 1, 0]) + np.array([value]).tobytes()
        assert judged(tmp_path, files, ALL + node + 2 * (default() + close(0))) == verdict
