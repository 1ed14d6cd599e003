"""Proofs as states: children start from them, and they can be selected, put together and stored."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.oracle import Masks
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.certified import Certified
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import Bits, MultiplierProof, point_of, with_cuts_of
from verifier.bounding.solvers.saddle import Saddle
from verifier.bounding.solvers.saddle_point import SaddlePoint, SaddleProof
from verifier.network.network import Network

SHORT = Ascent(15, Steps(0.05, 0.01))
NOTHING = Ascent(0, SHORT.steps)
ACTIVE = ActiveSet(SHORT, SHORT, Additions(5, 1, 3), point=OraclePoint.AVERAGE)
SOLVERS: dict[str, Bounder] = {
    "alpha_crown": AlphaCrown(SHORT),
    "big_m": BigM(SHORT),
    "active_set": ACTIVE,
    "active_set_shared": replace(ACTIVE, masks=Masks.SHARED),
    "saddle_point": SaddlePoint(15, initial=ActiveSet(NOTHING, SHORT, Additions(most=0)), primal_start=SHORT),
    "as_sp": SaddlePoint(15, initial=ACTIVE, primal_start=SHORT),
}


def stopped(solver: Bounder) -> Bounder:
    """The same solver without any iteration."""
    if isinstance(solver, SaddlePoint):
        return replace(solver, iterations=0, initial=ActiveSet(NOTHING, NOTHING), primal_start=NOTHING)
    if isinstance(solver, ActiveSet):
        return replace(solver, ascent=NOTHING, initial=NOTHING)
    assert isinstance(solver, AlphaCrown | BigM)
    return replace(solver, ascent=NOTHING)


def instance(family: str, seed: int, count: int = 3) -> tuple[Network, Region, Objective]:
    """A network, regions with fixed kinks, two objectives."""
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.8, count)
    region = RootBounds().region(net, lower, upper, Until())
    kinks = Sweep.prepare(net, region, len(net.layers)).kinks
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in region.l_hat)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, 2, net.n_out, generator=generator, dtype=torch.float64)
    region = replace(region, kinks=tuple(k.index for k in kinks), splits=splits)
    return net, region, Objective(len(net.layers), weights)


def child(region: Region, seed: int, signs: int = 3) -> Region:
    """Some ambiguous neurons of every region get a sign."""
    generator = torch.Generator().manual_seed(seed)
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    assert region.splits is not None
    splits = [t.clone() for t in region.splits]
    for k in range(1, region.known + 1):
        for d in range(region.count):
            free = torch.nonzero(region.ambiguous(k)[d]).flatten()
            for neuron in free[torch.randperm(len(free), generator=generator)[:signs]].tolist():
                sign = int(torch.randint(0, 2, (), generator=generator)) * 2 - 1
                splits[k - 1][d, neuron] = sign
                (low if sign > 0 else high)[k - 1][d, neuron] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))


def state(found: Bound) -> Proof:
    assert found.proof is not None
    return found.proof


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_state_gives_back_its_bound(family: str, solver: str) -> None:
    """Evaluated, and as the start of a run without iterations, in one part and in several."""
    net, region, objective = instance(family, 7)
    first = SOLVERS[solver].bound(net, region, objective, Until())
    torch.testing.assert_close(state(first).evaluate(net, region, objective), first.lower, rtol=0, atol=1e-9)
    for memory in (2**30, 1):
        tight = replace(stopped(SOLVERS[solver]), memory_bytes=memory)
        again = tight.bound(net, region, objective, Until(), state(first))
        torch.testing.assert_close(again.lower, first.lower, rtol=0, atol=1e-9)
        assert again.iterations == 0


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", SOLVERS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_children_start_validly_from_their_parents(family: str, solver: str, seed: int) -> None:
    """Never above their own linear program, which needs the parent's masks and prices to stay valid for them."""
    net, region, objective = instance(family, seed, count=1)
    parent = SOLVERS[solver].bound(net, region, objective, Until())
    below = child(region, seed)
    reference: Bounder = PlanetLP() if solver in ("alpha_crown", "big_m") else CutLP(rounds=10)
    program = reference.bound(net, below, objective, Until()).lower + 2e-3
    assert bool((state(parent).evaluate(net, below, objective) <= program).all())
    for kept in (state(parent), state(parent).compact()):
        warm = SOLVERS[solver].bound(net, below, objective, Until(), kept)
        start = stopped(SOLVERS[solver]).bound(net, below, objective, Until(), kept)
        assert bool((warm.lower <= program).all())
        assert bool((warm.lower >= start.lower - 1e-9).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4)
def test_inherited_prices_mean_what_they_say(family: str, seed: int) -> None:
    """The bound of a parent's prices is the Lagrangian at its minimiser, also where kinks have become stable."""
    net, region, objective = instance(family, seed, count=2)
    parent = state(SOLVERS["as_sp"].bound(net, region, objective, Until()))
    assert isinstance(parent, SaddleProof)
    dual = Lagrangian(Sweep.prepare(net, child(region, seed), objective.layer), objective)
    generator = torch.Generator().manual_seed(seed)
    point = torch.rand(dual.zero().shape, generator=generator, dtype=torch.float64)
    saddle = Saddle.without_cuts(dual, point)
    at = saddle.answer(parent.state.prices, 0)
    values, x_hats = saddle.sweep.through_kinks(at.vertex.x0, at.vertex.x)
    total = (objective.coefficients * net.output.forward(values)).sum(dim=-1)
    for k, (kinks, prices, x_hat) in enumerate(zip(dual.sweep.kinks, parent.state.prices, x_hats, strict=True)):
        x = values[k + 1].index_select(-1, kinks.index)
        z = torch.where(kinks.ambiguous, at.vertex.z[k], kinks.upper)  # 1 where it passes, 0 where it blocks
        assert kinks.sign is not None
        branch = -kinks.sign * saddle.splits[k] * x_hat
        own = torch.where(kinks.ambiguous, prices.alpha * (x_hat - x), branch) + prices.total * x - prices.g * z
        total = total + own.sum(dim=-1) + prices.constant
        for (source, _), spread in zip(net.layers[k].terms, prices.spread, strict=True):
            total = total - (spread * values[source]).sum(dim=-1)
    torch.testing.assert_close(at.lower, total, rtol=0, atol=1e-8)


def agreeing(region: Region, dual: Lagrangian, point: torch.Tensor, seed: int) -> Region:
    """Fix neurons to signs that let their x_hat keep its coefficient alpha - beta1.

    A blocking neuron's is the split's multiplier, which is not negative; a passing one's is what its output costs less
    that multiplier.  With beta0 = 0 that suffices exactly where the inner minimiser has x = 0.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    splits = [torch.zeros_like(t, dtype=torch.int8) for t in low]
    for k, (kinks, at, x) in enumerate(zip(dual.sweep.kinks, dual.views(point), dual.evaluate(point).x, strict=True)):
        for d, a in torch.nonzero(kinks.ambiguous[:, 0]).tolist():
            wanted = int(torch.randint(-1, 2, (), generator=generator))
            may_pass, may_block = bool((x[d, :, a] == 0).all()), bool((at.alpha >= at.beta1)[d, :, a].all())
            sign = wanted if (wanted > 0 and may_pass) or (wanted < 0 and may_block) else 0
            splits[k][d, kinks.index[a]] = sign
            if sign != 0:
                (low if sign > 0 else high)[k][d, kinks.index[a]] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", ["big_m", "active_set", "saddle_point"])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=20)
def test_a_split_that_agrees_with_the_prices_takes_nothing_away(family: str, solver: str, seed: int) -> None:
    """The child's start is the parent's bound and what the fixed neurons' relaxations have cost."""
    net, region, objective = instance(family, seed)
    dual = Lagrangian(Sweep.prepare(net, region, objective.layer), objective)
    point = torch.rand(dual.zero().shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for at in dual.views(point):
        at.beta0.zero_()
        at.split.zero_()
    below = agreeing(region, dual, point, seed)
    start = stopped(SOLVERS[solver]).bound(net, below, objective, Until(), MultiplierProof(point))
    assert bool((start.lower >= dual.evaluate(point).lower - 1e-9).all())


def test_settled_multipliers_stay_as_they_are() -> None:
    net, region, objective = instance("residual", 3)
    parent = state(SOLVERS["active_set"].bound(net, region, objective, Until()))
    plain = Lagrangian(Sweep.prepare(net, child(region, 3), objective.layer), objective)
    dual = with_cuts_of(parent, plain)
    inherited = MultiplierProof(parent.explicit().start(dual), parent.explicit().masks)
    once = point_of(inherited, dual)
    assert not torch.equal(once, inherited.point)
    assert torch.equal(point_of(replace(inherited, point=once), dual), once)


@pytest.mark.parametrize("solver", SOLVERS)
def test_proofs_can_be_selected_and_put_together(solver: str) -> None:
    net, region, objective = instance("residual", 5)
    whole = state(SOLVERS[solver].bound(net, region, objective, Until()))
    values = whole.evaluate(net, region, objective)
    rows = torch.tensor([2, 0, 2])
    chosen = whole.select(rows)
    torch.testing.assert_close(chosen.evaluate(net, region.select(rows), objective), values[rows])
    first, second = whole.select(torch.tensor([2])), whole.select(torch.tensor([0, 2]))
    torch.testing.assert_close(first.cat([first, second]).evaluate(net, region.select(rows), objective), values[rows])
    parts = [whole.part(i, i + 1) for i in range(2)]
    torch.testing.assert_close(parts[1].evaluate(net, region, objective.part(1, 2)), values[:, 1:])
    torch.testing.assert_close(parts[0].joined(parts).evaluate(net, region, objective), values)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_compact_proof_is_close_and_of_the_same_kind(solver: str) -> None:
    net, region, objective = instance("conv", 4)
    whole = state(SOLVERS[solver].bound(net, region, objective, Until()))
    small = whole.compact()
    values = small.evaluate(net, region, objective)
    torch.testing.assert_close(values, whole.evaluate(net, region, objective), rtol=0, atol=2e-2)
    torch.testing.assert_close(small.compact().evaluate(net, region, objective), values)
    rows = torch.tensor([1, 1])
    torch.testing.assert_close(small.select(rows).evaluate(net, region.select(rows), objective), values[rows])
    mixed = small.cat([small, small]) if isinstance(whole, SaddleProof) else small.cat([small, whole])
    assert mixed.evaluate(net, region.select(torch.tensor([0, 1, 2, 0, 1, 2])), objective).shape == (6, 2)


@given(size=st.integers(1, 20), seed=st.integers(0, 99))
def test_packed_bits_come_back(size: int, seed: int) -> None:
    mask = torch.rand(2, 3, size, generator=torch.Generator().manual_seed(seed)) < 0.5
    packed = Bits.of(mask).compact()
    assert packed.data.numel() == 6 * -(-size // 8)
    assert packed.data.dtype is torch.uint8
    assert bool((packed.unpacked() == mask).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", ["big_m", "active_set", "saddle_point"])
def test_slopes_become_multipliers_of_the_same_value(family: str, solver: str) -> None:
    net, region, objective = instance(family, 9)
    below = child(region, 9)
    slopes = SOLVERS["alpha_crown"].bound(net, below, objective, Until())
    start = stopped(SOLVERS[solver]).bound(net, below, objective, Until(), state(slopes))
    torch.testing.assert_close(start.lower, slopes.lower, rtol=0, atol=1e-9)


def test_states_of_tighter_solvers_start_looser_ones_but_not_alpha_crown() -> None:
    net, region, objective = instance("dense", 2)
    for solver in ("active_set", "as_sp"):
        tight = SOLVERS[solver].bound(net, region, objective, Until())
        loose = BigM(SHORT).bound(net, region, objective, Until(), state(tight))
        assert bool((loose.lower <= PlanetLP().bound(net, region, objective, Until()).lower + 1e-9).all())
        with pytest.raises(TypeError, match="slopes"):
            AlphaCrown(SHORT).bound(net, region, objective, Until(), state(tight))


def test_masks_are_inherited_and_count_towards_the_most() -> None:
    net, region, objective = instance("conv", 8)
    below = child(region, 8)
    parent = ACTIVE.bound(net, region, objective, Until())
    more = replace(ACTIVE, additions=Additions(5, 1, 5))
    proof = more.bound(net, below, objective, Until(), state(parent)).proof
    old = state(parent)
    assert isinstance(old, MultiplierProof)
    assert isinstance(proof, MultiplierProof)
    assert (len(old.masks), len(proof.masks)) == (3, 5)
    for before, after in zip(old.masks, proof.masks, strict=False):
        for a, b in zip(before, after, strict=True):
            assert a is not None
            assert b is not None
            assert torch.equal(a.bits[0].data, b.bits[0].data)


def test_resume_takes_the_place_of_the_initial_ascent() -> None:
    net, region, objective = instance("dense", 6)
    for solver in (replace(ACTIVE, ascent=NOTHING), SOLVERS["saddle_point"]):
        assert isinstance(solver, ActiveSet | SaddlePoint)
        cold = solver.bound(net, region, objective, Until())
        assert cold.iterations == 15 + (15 if isinstance(solver, SaddlePoint) else 0)
        warm = solver.bound(net, region, objective, Until(), state(cold))
        again = replace(solver, resume=Ascent(7, SHORT.steps)).bound(net, region, objective, Until(), state(cold))
        assert again.iterations == warm.iterations + 7
        assert warm.iterations == cold.iterations - 15


@pytest.mark.parametrize("inner", [Interval(), Linear(), PlanetLP(), CutLP()])
def test_bounders_without_variables_ignore_a_state(inner: Bounder) -> None:
    net, region, objective = instance("dense", 1)
    warm = state(BigM(SHORT).bound(net, region, objective, Until()))
    with_it = inner.bound(net, region, objective, Until(), warm).lower
    torch.testing.assert_close(with_it, inner.bound(net, region, objective, Until()).lower)


@pytest.mark.parametrize("solver", SOLVERS)
def test_certified_hands_the_state_on(solver: str) -> None:
    net, region, objective = instance("residual", 3)
    first = Certified(SOLVERS[solver]).bound(net, region, objective, Until())
    for memory in (2**30, 1):
        tight = Certified(replace(stopped(SOLVERS[solver]), memory_bytes=memory), memory_bytes=memory)
        again = tight.bound(net, region, objective, Until(), state(first))
        torch.testing.assert_close(again.lower, first.lower, rtol=0, atol=1e-5)


def test_rounding_in_the_parent_is_paid_for_in_the_child() -> None:
    """The constants of forgotten masks were rounded with the parent's large numbers."""
    net, region, objective = instance("dense", 4, count=1)
    proof = state(SOLVERS["saddle_point"].bound(net, region, objective, Until()))
    assert isinstance(proof, SaddleProof)
    error = sum(float(prices.error.sum()) for prices in proof.state.prices)
    assert 0 < error < 1e-10
    dual = Lagrangian(Sweep.prepare(net, region, objective.layer), objective)
    saddle = Saddle.without_cuts(dual, dual.zero())
    doubled = saddle.settled(proof.state.prices, 2**20)
    cost = saddle.answer(proof.state.prices, 0).lower - saddle.answer(doubled, 0).lower
    paid = sum(b.error - a.error for a, b in zip(proof.state.prices, doubled, strict=True))
    torch.testing.assert_close(cost, paid, rtol=1e-3, atol=0)


def test_prices_of_different_precisions_stay_apart() -> None:
    net, region, objective = instance("dense", 4)
    single = net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32)
    proofs = [state(SOLVERS["saddle_point"].bound(*case, Until())) for case in ((net, region, objective), single)]
    with pytest.raises(ValueError, match="precision"):
        proofs[0].cat(proofs)


def test_prices_of_single_precision_prove_nothing_in_double() -> None:
    net, region, objective = instance("dense", 4)
    single = net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32)
    proof = state(SOLVERS["saddle_point"].bound(*single, Until()))
    assert isinstance(proof, SaddleProof)
    lower = proof.evaluate(net, region, objective)
    torch.testing.assert_close(lower, proof.multipliers.evaluate(net, region, objective), rtol=0, atol=0)
    assert bool((proof.evaluate(*single) > lower.float() + 1e-4).any())
