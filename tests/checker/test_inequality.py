"""The inequality against the truth: whatever the multipliers, no bound is above what the network reaches."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from checker.building import network_of

import verifier.checker.inequality as kernel
from verifier.checker.inequality import Target
from verifier.checker.network import Network
from verifier.checker.proving import Claim, Setting, proved
from verifier.checker.rationals import Array
from verifier.checker.scope import Scope, interval
from verifier.checker.witness import BALANCED, RowMask, Scattered, Section, Share, SharedMask, Witness, Witnesses

GRID = 61


@dataclass(frozen=True, eq=False)
class Case:
    """A tiny network on a box, a row of its output, the least value of it on a grid, and intervals of its neurons."""

    net: Network
    scope: Scope
    target: Target
    reached: float


def forward(net: Network, x: Array) -> list[Array]:
    values = {0: x}
    found = []
    for k, layer in enumerate(net.layers, start=1):
        t = sum(chain.forward(values[source]) for source, chain in layer.terms) + layer.bias
        values[k] = np.maximum(t, 0)
        found.append(t)
    return found


def bounded(net: Network, scope: Scope) -> Scope:
    for k in range(1, net.groups + 1):
        scope = scope.sized(net, k)
        scope = scope.bounded(k, *interval(net, scope, k))
    return scope.sized(net, net.groups + 1)


@functools.cache
def cases(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n, width = 2, 3
    layers = [[(0, rng.normal(size=(width, n))), rng.normal(size=width) * 0.3]]
    again = rng.normal(size=(width, width))  # read twice, so that entries cancel
    layers += [
        [
            (1, again * 0.7 + rng.normal(size=(width, width))),
            (1, -again),
            (0, rng.normal(size=(width, n))),
            rng.normal(size=width) * 0.3,
        ]
    ]
    layers += [[(2, rng.normal(size=(1, width))), (1, rng.normal(size=(1, width))), rng.normal(size=1)]]
    net = network_of(n, layers)
    low = rng.normal(size=n) * 0.3 - 0.5
    scope = bounded(net, Scope.start(net, low, low + 1.0))
    direct = rng.normal(size=(1, n)) * 0.2
    e = rng.normal(size=1)
    one = np.ones((1, 1))
    target = Target(net.groups + 1, one, one, direct, np.abs(direct), e, np.abs(e), 1)
    axes = [np.linspace(a, b, GRID) for a, b in zip(scope.low[0], scope.high[0], strict=True)]
    points = np.stack([part.ravel() for part in np.meshgrid(*axes)], axis=1)
    inside = np.ones(len(points), np.bool_)
    if seed % 2:  # a sign as in a domain of the search
        scope = scope.passing(1, np.arange(width) == 0)
        inside = forward(net, points)[0][:, 0] >= 0
    values = forward(net, points)[-1][:, 0] + points @ direct[0] + e
    return Case(net, scope, target, float(values[inside].min()) if inside.any() else np.inf)


def random_witness(rng: np.random.Generator, net: Network, size: float) -> Witness:
    sections = {}
    for k in range(1, net.groups + 1):
        n, inputs = net.size(k), sum(net.inputs(k))
        shares = []
        for form in range(3):
            mask = SharedMask(rng.random((1, inputs)) < 0.5, rng.random((1, inputs)) < 0.5)
            if form == BALANCED:
                mask = replace(mask, negative=~mask.positive)
            single = RowMask(np.arange(n), rng.random((n, inputs)) < 0.5)
            amount = Scattered(np.arange(n), rng.random((1, n)) * (rng.random((1, n)) < 0.4))
            shares.append(Share(single if form == 2 else mask, amount, bool(rng.random() < 0.7)))
        slopes = Scattered(np.arange(n), rng.normal(size=(1, n)) * 0.5 + 0.5)
        deltas = Scattered(np.arange(n), rng.normal(size=(1, n)) * size)
        some = tuple(share for share in shares if rng.random() < 0.6)
        sections[k] = Section(slopes, deltas, some, bool(rng.random() < 0.2))
    return Witness(sections)


def nudged(rng: np.random.Generator, witness: Witness) -> Witness:
    """A few of the numbers moved a little."""

    def moved(given: Scattered, least: float) -> Scattered:
        step = rng.normal(size=given.values.shape) * 0.2 * (rng.random(given.values.shape) < 0.3)
        return replace(given, values=np.maximum(given.values + step, least))

    sections = {}
    for k, section in witness.sections.items():
        assert section.slopes is not None
        assert section.deltas is not None
        shares = tuple(replace(share, amount=moved(share.amount, 0.0)) for share in section.shares)
        sections[k] = replace(
            section, slopes=moved(section.slopes, -np.inf), deltas=moved(section.deltas, -np.inf), shares=shares
        )
    return Witness(sections)


def value(module: ModuleType, case: Case, witness: Witness) -> float:
    with np.errstate(all="ignore"):
        choose = Witnesses([1], [witness]).chooser(case.net, case.scope)
        found, _ = module.plane(case.net, case.scope, case.target, choose)
    return float(found.least(case.scope.low, case.scope.high)[0])


def climbed(module: ModuleType, seed: int, steps: int) -> float:
    """How far above the truth an adversary gets."""
    rng, case = np.random.default_rng(1000 + seed), cases(seed)
    best = random_witness(rng, case.net, rng.choice([0.0, 0.3]))
    height = value(module, case, best)
    for _ in range(steps):
        other = nudged(rng, best) if rng.random() < 0.8 else random_witness(rng, case.net, 0.1)
        if (found := value(module, case, other)) > height:
            best, height = other, found
    return height - case.reached


@pytest.mark.parametrize("seed", range(24))
def test_no_adversary_climbs_above_the_truth(seed: int) -> None:
    assert climbed(kernel, seed, 60) <= 0


MUTANTS = {
    "the larger case": ("np.minimum(passes, blocks), either", "np.maximum(passes, blocks), either"),
    "a forgotten blocking case": ("np.minimum(passes, blocks), either", "passes, either"),
    "a forgotten passing case": ("np.minimum(passes, blocks), either", "blocks, either"),
    "passing from below zero": (
        "np.minimum(rest * np.maximum(low, 0), rest * high)",
        "np.maximum(rest * low, rest * high)",
    ),
    "one end of blocking": ("np.maximum(mu * low, mu * np.minimum(high, 0))", "mu * np.minimum(high, 0)"),
    "kappa twice at the neuron": ("rest = rest - kappa", "rest = rest - 2 * kappa"),
    "no price of a cut that passes": ("passed = passed + kappa * cut.gap", "passed = passed + 0 * kappa"),
    "no price of a cut that blocks": ("blocked = blocked - kappa * cut.off", "blocked = blocked + kappa * cut.off"),
    "no bias": ("(mu * layer.bias_of(mu)).sum(axis=1)", "np.abs(mu * layer.bias_of(mu)).sum(axis=1)"),
    "cuts do not move to their inputs": ("for kappa, cut in cuts for part in cut.transpose(kappa)", "for part in ()"),
    "the wrong end of the box": (
        "np.minimum(self.slope * lower, self.slope * upper)",
        "np.maximum(self.slope * lower, self.slope * upper)",
    ),
    "positive kappa": ("raise Rejected", "pass  # "),
}


@pytest.fixture
def mutated(tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """The kernel with one mistake each."""
    source = Path(kernel.__file__).read_text()
    found = {}
    for number, (name, (old, new)) in enumerate(MUTANTS.items()):
        assert old in source, f"the mutant '{name}' changes nothing"
        path = tmp_path / f"mutant_{number}.py"
        path.write_text(source.replace(old, new))
        spec = importlib.util.spec_from_file_location(f"verifier.checker.mutant_{number}", path)
        assert spec is not None
        assert spec.loader is not None
        found[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[name])
    yield found
    for number in range(len(MUTANTS)):
        sys.modules.pop(f"verifier.checker.mutant_{number}")


def test_the_adversary_finds_every_mistake_of_the_kernel(mutated: dict[str, ModuleType]) -> None:
    del mutated["positive kappa"]  # the readers never make one: see the next test
    for name, module in mutated.items():
        assert any(climbed(module, seed, 25) > 0 for seed in range(24)), f"nobody noticed: {name}"


def test_a_positive_kappa_is_refused() -> None:
    case = cases(0)
    n = case.net.size(2)
    mask = SharedMask(np.ones((1, sum(case.net.inputs(2))), np.bool_), np.zeros((1, sum(case.net.inputs(2))), np.bool_))

    def cut(amount: float) -> Witness:
        return Witness({2: Section(shares=(Share(mask, Scattered(np.arange(n), np.full((1, n), amount)), False),))})

    with pytest.raises(kernel.Rejected, match="kappa"):
        value(kernel, case, cut(-0.5))
    assert value(kernel, case, cut(np.nan)) == -np.inf


@pytest.mark.parametrize("seed", range(6))
def test_rationals_are_never_below_floats(seed: int) -> None:
    rng, case = np.random.default_rng(seed), cases(seed)
    for size in (0.0, 1.0, 1e6):
        claim = Claim(0, case.target, random_witness(rng, case.net, size))
        ((_, found),) = proved(Setting(case.net, [], exact=True), case.scope, [claim])
        assert found.sharp is not None
        (slope,), (offset,) = found.sharp.slope.fractions, found.sharp.offset.fractions
        ends = [(Fraction(a), Fraction(b)) for a, b in zip(case.scope.low[0], case.scope.high[0], strict=True)]
        least = offset + sum(min(s * a, s * b) for s, (a, b) in zip(slope, ends, strict=True))
        rounded = float(found.least(case.scope.low, case.scope.high)[0])
        assert Fraction(rounded) <= least
        assert float(least) - rounded <= 1e-9 * (1 + size)


def test_what_is_not_finite_proves_nothing() -> None:
    case = cases(0)
    for low in (-np.inf, np.nan):
        broken = replace(case.scope, lower=(np.full((1, 3), low), *case.scope.lower[1:]))
        assert value(kernel, replace(case, scope=broken), Witness({})) == -np.inf
    crossed = case.scope.bounded(1, np.full(3, 5.0), np.full(3, 4.0))
    assert value(kernel, replace(case, scope=crossed), Witness({})) == -np.inf
    huge = replace(case.scope, sizes=tuple(part * 2.0**300 for part in case.scope.sizes))
    assert value(kernel, replace(case, scope=huge), Witness({})) == -np.inf
