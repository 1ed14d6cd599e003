"""Laws of the checker that any copy of it can be asked to keep: each returns what is wrong with a kit, or None.

The strongest is the con man.  His networks have one input, and their boxes are cut where neurons bend, so that every
bound is nearly exact; his property holds at one point that he knows, and nearly nowhere else.  For every rule he
has proofs that are right everywhere but there, and leave that point out in the way that the rule must prevent.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from checker.building import (
    KEEP,
    NOTHING,
    RECALL,
    close,
    cut,
    default,
    empty,
    improve,
    members,
    network_of,
    part,
    shrink,
    split,
    two_layers,
    varint,
    weights,
)
from checker.forging import Problem, rows_at
from checker.kits import KIT, Kit
from checker.problems import STYLES, model

from verifier.checker.vnnlib import Clause

Rng = np.random.Generator

# -- the con man -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Con:
    """A problem on a line, which is false at one point; the cells of the line, and which of them holds the point."""

    problem: Problem
    false: int
    point: float
    cells: list[tuple[float, float]]
    place: int

    @property
    def true(self) -> int:
        return 1 - self.false

    @property
    def neurons(self) -> int:
        return int(self.problem.net.size(1))

    def close(self, clause: int, lam: Sequence[float] = (0.5, 0.5), using: bytes = NOTHING) -> bytes:
        return close(clause, weights(lam) if clause else b"", using)

    def leaf(self, kinds: int = 1) -> bytes:
        """As it is right in all other cells."""
        return default(1, kinds) + self.close(0) + self.close(1)

    def tree(self, there: bytes) -> bytes:
        """All cells one after the other, with something else in the one that holds the point."""
        return self.line(self.cells, [there if i == self.place else self.leaf() for i in range(len(self.cells))])

    def near(self, width: float, there: bytes) -> bytes:
        """The same with something else only in a small cell around the point, which may be cut by a bend."""
        inner = {max(self.point - width, -1.0), min(self.point + width, 1.0)}
        cells = list(itertools.pairwise(sorted({low for low, _ in self.cells} | inner | {1.0})))
        inside = [min(inner) <= low and high <= max(inner) for low, high in cells]
        return self.line(cells, [there if here else self.leaf() for here in inside])

    def line(self, cells: Sequence[tuple[float, float]], said: Sequence[bytes]) -> bytes:
        parts = [cut(0, high) + own for (_, high), own in zip(cells[:-1], said[:-1], strict=True)]
        return b"".join(parts) + said[-1]

    def beside(self) -> Iterator[float]:
        low, high = self.cells[self.place]
        for step in (-1e-3, 1e-3):
            if low < self.point + step < high:
                yield self.point + step

    def there(self) -> Iterator[bytes]:
        """What might be said where the point is."""
        leaf, only = self.leaf(), default() + self.close(self.true)
        yield from (self.leaf(kinds) for kinds in (0, 1, 2, 4, 8, 24, 31))
        yield from (only, only + self.close(self.true), self.close(self.true), leaf[:-1])
        yield from (default() + self.close(0, lam) + self.close(1, lam) for lam in ((1, -1), (-1, 1), (0, 0), (1, 0)))
        for value in self.beside():
            yield cut(0, value) + leaf + leaf
            for side, planes in itertools.product((0, 1), ([0, 1], [self.true], [])):
                lambdas = {0: b"", 1: weights((0.5, 0.5))}
                yield default() + shrink([(c, lambdas[c] + NOTHING) for c in planes], [(0, side, value)]) + leaf
        for i in range(self.neurons):
            gone = default() + empty(1, i)
            yield from (gone, default() + improve(1, [i], [i], NOTHING) + empty(1, i))
            yield default() + improve(1, [i], [i], NOTHING) + leaf
            for first, second in itertools.product((leaf, gone), repeat=2):
                yield split(1, i) + first + second
                yield default() + KEEP + split(1, i) + RECALL + first + RECALL + second
            yield default() + part([self.false]) + varint(11) + varint(0) + empty(1, i) + self.close(self.true)
        alone, closed = default() + self.close(self.false), default() + self.close(self.true)
        for first, second in itertools.product((alone, closed), repeat=2):
            yield part([0]) + first + second
            yield part([1]) + first + second

    def bodies(self) -> Iterator[bytes]:
        """Whole proofs."""
        both = members([0, 1])
        yield from (both + self.tree(there) for there in self.there())
        for width, lam in itertools.product((0.1, 0.05, 0.02, 0.01), ((1, -1), (-1, 1))):
            yield both + self.near(width, default() + self.close(0) + self.close(1, lam))
        for width, i in itertools.product((0.1, 0.01), range(self.neurons)):
            forced = varint(11) + varint(0) + empty(1, i)
            order = forced + self.close(self.true)
            yield both + self.near(width, default() + part([self.false]) + order)
        if self.place:  # nothing behind the first cell
            yield both + cut(0, self.cells[0][1]) + self.leaf()
        without = self.tree(b"").replace(self.leaf(), default() + self.close(self.true))
        yield from (members([self.true]) + without, both + without)
        only = members([self.true]) + self.tree(default() + self.close(self.true)).replace(
            self.leaf(), default() + self.close(self.true)
        )
        yield from (only, only + only)


def con(seed: int) -> Con:
    """Two clauses on boxes of their own; the first has one row, the second two."""
    rng = np.random.default_rng(seed)
    first, bias, last = rng.normal(size=(3, 1)), rng.normal(size=3) * 0.4, rng.normal(size=(2, 3))
    factors = rng.normal(size=(3, 2))
    if seed % 8 == 2:  # rows that would force signs, were they at most zero
        last, factors = np.abs(last), np.abs(factors)
    data = two_layers(first, bias, last).SerializeToString()
    rows = [{("Y", j): Fraction(float(np.float32(a))) for j, a in enumerate(row)} for row in factors]
    false = 1 if seed % 8 == 1 else int(rng.integers(2))
    boxes = [(-1.0, 1.0) if number == false else (-0.5, 0.75) for number in range(2)]
    clauses = [
        Clause(np.array([low]), np.array([high]), tuple(some), 2)
        for (low, high), some in zip(boxes, (rows[:1], rows[1:]), strict=True)
    ]
    plain = Problem(data, clauses)
    heights, spots = [], []
    grid = np.linspace(-1.0, 1.0, 2001)[1:-1, None]
    for clause in clauses:
        found = rows_at(plain.net, clause, grid).mean(axis=1)
        heights.append(rows_at(plain.net, clause, KIT.rationals.Rationals.of(grid[found.argmin()][None])).fractions[0])
        spots.append(float(grid[found.argmin(), 0]))
    for number, reached in enumerate(heights):  # the rows of the true one stay a bit above zero
        room = 0 if number == false else Fraction(1, 64)
        apart = Fraction(seed % 8 == 1, 20)  # how much further below zero the second row is than the first
        more = [i * apart - room for i in range(len(reached))]
        plain = plain.raised(number, [value + extra for value, extra in zip(reached, more, strict=True)])
    w, b = (np.asarray(part, np.float32).astype(float) for part in (first[:, 0], bias))
    bends = sorted(float(-shift / slope) for slope, shift in zip(w, b, strict=True) if -1 < -shift / slope < 1)
    ends = [-1.0, *bends, 1.0]
    cells = list(itertools.pairwise(ends))
    place = next(i for i, (low, high) in enumerate(cells) if low <= spots[false] <= high)
    return Con(plain, false, spots[false], cells, place)


def conned(kit: Kit, seeds: Sequence[int] = range(10)) -> str | None:
    """Whether a proof of what is false gets through."""
    for seed in seeds:
        given = con(seed)
        problem = Problem(given.problem.model, given.problem.clauses, kit)
        for number, body in enumerate(given.bodies()):
            if problem.judge(body)[0] is None:
                return f"proof {number} of what is false is accepted (network {seed})"
    return None


# -- bounds ------------------------------------------------------------------------------------------------------------


@functools.cache
def sampled(seed: int) -> tuple[list[Any], np.ndarray, list[np.ndarray]]:
    """Layers of a small network that reads the input and a group twice, a box, and values of all layers in it."""
    rng = np.random.default_rng(seed)
    again = rng.normal(size=(4, 4))
    layers: list[Any] = [[(0, rng.normal(size=(4, 2))), rng.normal(size=4) * 0.3]]
    layers += [
        [(1, again), (1, 0.5 * rng.normal(size=(4, 4)) - again), (0, rng.normal(size=(4, 2))), rng.normal(size=4)]
    ]
    layers += [[(2, rng.normal(size=(3, 4))), (1, rng.normal(size=(3, 4))), rng.normal(size=3)]]
    layers += [[(3, rng.normal(size=(1, 3))), rng.normal(size=1)]]
    centre = rng.normal(size=2) * 0.3
    box = np.stack([centre - rng.random(2), centre + rng.random(2)])
    axes = [np.linspace(low, high, 41) for low, high in box.T]
    x = {0: np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)}
    found = []
    for k, layer in enumerate(layers, start=1):
        t = sum(x[item[0]] @ item[1].T if isinstance(item, tuple) else item for item in layer)
        found.append(t)
        x[k] = np.maximum(t, 0)
    return layers, box, found


def too_tight(kit: Kit) -> str | None:
    """Whether bounds of neurons exclude values that the network takes: each way to find them, in each half of a box."""
    for seed, kinds in itertools.product(range(6), (0, 1, 2, 4, 8, 24)):
        layers, box, values_of = sampled(seed)
        net = network_of(2, layers, kit)
        setting = kit.proving.Setting(net, [])
        points = np.stack(np.meshgrid(*[np.linspace(low, high, 41) for low, high in box.T]), axis=-1).reshape(-1, 2)
        middle = float(box[:, 0].mean())
        whole = kit.scope.Scope.start(net, box[0], box[1])
        parts = kit.nodes.Cut(0, middle).scopes(setting, whole)
        masks = [points[:, 0] <= middle, points[:, 0] >= middle]
        node = kit.nodes.Default(1, kinds)
        scopes = [scope for part in parts for scope in kit.nodes.Split(1, 0).scopes(setting, part)]
        signs = [values_of[0][:, 0] >= 0, values_of[0][:, 0] <= 0]
        for scope, (mask, sign) in zip(
            node.judged(setting, [node] * 4, scopes), itertools.product(masks, signs), strict=True
        ):
            known = scope.scopes[0]
            for k in range(1, 4):
                reached = values_of[k - 1][mask & sign]
                if (reached < known.lower[k - 1] - 1e-9).any() or (reached > known.upper[k - 1] + 1e-9).any():
                    return f"bounds of kind {kinds} exclude what group {k} reaches (network {seed})"
    return None


def random_cuts(kit: Kit, rng: Rng, net: Any) -> Any:
    """Witnesses with cuts of all forms."""
    kinds, sections = kit.witness, {}
    for k in range(1, net.groups + 1):
        n, inputs, shares = net.size(k), sum(net.inputs(k)), []
        for form in range(3):
            bits = [rng.random((1, inputs)) < 0.5 for _ in range(2)]
            mask = kinds.SharedMask(bits[0], ~bits[0] if form == 0 else bits[1])
            if form == 2:
                mask = kinds.RowMask(np.arange(n), rng.random((n, inputs)) < 0.5)
            amount = kinds.Scattered(np.arange(n), rng.random((1, n)) * (rng.random((1, n)) < 0.5))
            shares.append(kinds.Share(mask, amount, bool(rng.random() < 0.7)))
        some = tuple(share for share in shares if rng.random() < 0.5)
        deltas = kinds.Scattered(np.arange(n), rng.normal(size=(1, n)) * rng.choice([0.0, 0.1]))
        sections[k] = kinds.Section(deltas=deltas, shares=some)
    return kinds.Witness(sections)


def too_high(kit: Kit, tries: int = 60) -> str | None:
    """Whether random multipliers, the best of them moved on, lift a bound above the least value of the output."""
    for seed in range(6):
        rng, (layers, box, reached) = np.random.default_rng(seed), sampled(seed)
        net = network_of(2, layers, kit)
        setting, node = kit.proving.Setting(net, []), kit.nodes.Default(1, 24)
        whole = kit.scope.Scope.start(net, box[0], box[1])
        scope = node.judged(setting, [node], [whole])[0].scopes[0]
        for sign in (1.0, -1.0):
            q, none, zero = np.full((1, 1), sign), np.zeros((1, 2)), np.zeros(1)
            target = kit.inequality.Target(net.groups + 1, q, np.abs(q), none, none, zero, zero, 1)
            claims = [kit.proving.Claim(0, target, random_cuts(kit, rng, net)) for _ in range(tries)]
            with np.errstate(all="ignore"):
                found = max(float(kit.proving.least(setting, scope, [claim])[0]) for claim in claims)
            if found > (sign * reached[-1]).min() + 1e-9:
                return f"a bound is above what the network reaches (network {seed})"
    return None


def unconfirmed(kit: Kit) -> str | None:
    """Whether floats promise more than rationals keep: numbers of all sizes that nearly cancel."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        big = rng.normal(size=(6, 3)) * 2.0 ** rng.integers(-20, 20, (6, 3))
        layers = [[(0, big), rng.normal(size=6)], [(1, rng.normal(size=(1, 6))), (1, rng.normal(size=(1, 6)))]]
        low = rng.normal(size=3)
        bounds: dict[bool, np.ndarray] = {}
        for judge, exact in ((kit, False), (KIT, True)):
            net = network_of(3, layers, judge)
            scope = judge.scope.Scope.start(net, low, low + rng.random() * 0).sized(net, 1)
            scope = scope.bounded(1, *judge.scope.interval(net, scope, 1)).sized(net, 2)
            if not exact:
                plain, box = scope, (scope.lower[0].copy(), scope.upper[0].copy())
                q, none, zero = np.ones((1, 1)), np.zeros((1, 3)), np.zeros(1)
                target = judge.inequality.Target(2, q, q, none, none, zero, zero, 1)
                bounds[False] = judge.proving.least(
                    judge.proving.Setting(net, []), plain, [judge.proving.Claim(0, target, judge.witness.Witness({}))]
                )
        x = KIT.rationals.Rationals.of(low[None])
        real = network_of(3, layers)
        t = real.layers[0].moved(real.layers[0].forward({0: x}))
        y = real.layers[1].forward({1: np.maximum(t, 0)})
        if not (np.asarray(t >= box[0]).all() and np.asarray(t <= box[1]).all()):
            return f"an interval does not hold what it should (network {seed})"
        if np.isfinite(bounds[False]).all() and not np.asarray(y >= bounds[False]).all():
            return f"a bound of a point is above its value (network {seed})"
    return None


def credulous(kit: Kit) -> str | None:
    """Whether `--exact` confirms what is too high: floats that forget to subtract and add something."""
    given = con(0)
    body = members([0, 1]) + given.leaf(0)
    problem = Problem(given.problem.model, given.problem.clauses, kit)
    lifted, plain, accepted = kit.inequality.Plane.least, kit.inequality.Plane.least, []  # type: Any, Any, list[bool]
    try:
        kit.inequality.Plane.least = lambda plane, low, high: lifted(plane, low, high) + 1e3
        for exact in (False, True):
            walk = kit.walk(*problem.read, body, exact)
            try:
                walk.run()
            except Exception:
                continue
            accepted.append(exact)
    finally:
        kit.inequality.Plane.least = plain
    assert False in accepted, "floats made nothing up"
    return "rationals confirm what floats made up" if True in accepted else None


def apart(kit: Kit) -> str | None:
    """Whether nodes that are judged together are judged otherwise than alone."""
    for seed in range(4):
        given = con(seed)
        low = [[Fraction(-5)] * len(clause.rows) for clause in given.problem.clauses]
        problem = given.problem
        for number, amounts in enumerate(low):
            problem = problem.raised(number, amounts)
        problem = Problem(problem.model, problem.clauses, kit)
        body = members([0, 1]) + given.tree(cut(0, given.point) + given.leaf(24) + given.leaf())
        outcomes = []
        for most in (1, kit.tree._MOST):
            before, kit.tree._MOST = kit.tree._MOST, most
            try:
                walk = problem.walk(body)
                walk.run()
                outcomes.append((walk.nodes, walk.closed, round(walk.margin, 9)))
            except Exception as error:
                outcomes.append((-1, -1, str(error)))  # type: ignore[arg-type]
            finally:
                kit.tree._MOST = before
        if len(set(outcomes)) != 1:
            return f"{outcomes[0]} alone and {outcomes[1]} together"
    return None


# -- readers -----------------------------------------------------------------------------------------------------------


TENTHS = (-7, -5, 0, 2, 3, 10, 13)
"""Few numbers, so that points often lie at ends of boxes."""


def misread(kit: Kit) -> str | None:
    """Whether a property means something else: random conditions, judged at random points."""
    rng = np.random.default_rng(0)
    names = [("X", 0), ("X", 1), ("Y", 0), ("Y", 1)]
    for _ in range(300):
        formulas = [_condition(rng, names) for _ in range(int(rng.integers(1, 4)))]
        box = "".join(f"(assert (>= X_{i} -0.7))(assert (<= X_{i} 0.3))" for i in range(2))
        declared = "".join(f"(declare-const {kind}_{j} Real)" for kind, j in names)
        try:
            clauses = kit.vnnlib.read_property(declared + box + "".join(f"(assert {text})" for text, _ in formulas))
        except kit.stream.Unreadable as error:
            return f"{[text for text, _ in formulas]} cannot be read: {error}"
        for point in [[Fraction(int(n), 10) for n in rng.choice(TENTHS, 4)] for _ in range(25)]:
            at = dict(zip(names, point, strict=True))
            unsafe = all(Fraction(-7, 10) <= at["X", i] <= Fraction(3, 10) for i in range(2))
            unsafe &= all(meaning(at) for _, meaning in formulas)
            if unsafe and not any(_inside(clause, at) for clause in clauses):
                return f"{[text for text, _ in formulas]} holds at {at}, and no clause does"
    return None


def _condition(rng: Rng, names: Sequence[tuple[str, int]]) -> tuple[str, Callable[[Any], bool]]:
    if rng.random() < 0.4:
        parts = [_condition(rng, names) for _ in range(int(rng.integers(1, 3)))]
        word, every = ("and", all) if rng.random() < 0.5 else ("or", any)
        return f"({word} {' '.join(text for text, _ in parts)})", lambda at: every(part(at) for _, part in parts)
    (left, one), (right, two) = _term(rng, names), _term(rng, names)
    sign = str(rng.choice(["<=", ">=", "<", ">", "="]))
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "=": lambda a, b: a == b,
    }
    return f"({sign} {left} {right})", lambda at: compare[sign](one(at), two(at))


def _term(rng: Rng, names: Sequence[tuple[str, int]]) -> tuple[str, Callable[[Any], Fraction]]:
    number, (kind, j) = int(rng.choice(TENTHS)), names[int(rng.integers(4))]
    value, text = Fraction(number, 10), f"{number / 10:.1f}"
    match int(rng.integers(6)):
        case 0:
            return text, lambda at: value
        case 1:
            return f"(* {text} {kind}_{j})", lambda at: value * at[kind, j]
        case 2:
            return f"(- {kind}_{j})", lambda at: -at[kind, j]
        case 3:
            return f"(- {kind}_{j} {text} Y_0)", lambda at: at[kind, j] - value - at["Y", 0]
        case 4:
            return f"(+ {kind}_{j} {text} Y_1)", lambda at: at[kind, j] + value + at["Y", 1]
    return f"{kind}_{j}", lambda at: at[kind, j]


def _inside(clause: Any, at: dict[tuple[str, int], Fraction]) -> bool:
    box = all(
        Fraction(float(low)) <= at["X", i] <= Fraction(float(high))
        for i, (low, high) in enumerate(zip(clause.low, clause.high, strict=True))
    )
    rows = (sum((a * (at[name] if name[0] else 1) for name, a in row.items()), Fraction(0)) for row in clause.rows)
    return box and all(value <= 0 for value in rows)


MAPS: dict[str, Callable[[Rng, Any], Any]] = {
    "select": lambda rng, maps: maps.Select(rng.integers(-1, 5, 7), 5),
    "scale": lambda rng, maps: maps.Scale(rng.normal(size=5), rng.normal(size=5)),
    "dense": lambda rng, maps: maps.Dense(rng.normal(size=(3, 4)), count=2),
    "sparse": lambda rng, maps: maps.Sparse((3, 4), np.array([2, 0, 2]), np.array([0, 3, 1]), rng.normal(size=3)),
    "windows": lambda rng, maps: maps.Windows(rng.normal(size=(2, 3, 4)), rng.integers(-1, 5, (3, 2)), 5),
}


def other_network(kit: Kit) -> str | None:
    """Whether maps do not do forward what they do back, or a network of every style computes something else."""
    for seed, (name, make) in itertools.product(range(4), MAPS.items()):
        rng = np.random.default_rng(seed)
        linear = make(rng, kit.maps)
        x, y = rng.normal(size=(5, linear.n_in)), rng.normal(size=(5, linear.n_out))
        if not np.allclose((linear.forward(x) * y).sum(axis=1), (x * linear.transpose(y)).sum(axis=1)):
            return f"a map of kind {name} is not what its transpose is"
        if linear.forward(x[:0]).shape != (0, linear.n_out) or linear.transpose(y[:0]).shape != (0, linear.n_in):
            return f"a map of kind {name} makes something of nothing"
    for seed, style in itertools.product(range(3), (*STYLES, "bare")):
        rng = np.random.default_rng(seed)
        data = model(rng, style)
        net, _ = kit.graph.read_network(data)
        points = rng.normal(size=(20, 6))
        values_of = {0: points}
        for k, layer in enumerate(net.layers, start=1):
            values_of[k] = layer.moved(layer.forward(values_of))
            mu = rng.normal(size=(20, layer.size))
            back = sum((part * values_of[j]).sum(axis=1) for j, part in layer.transpose(mu))
            ahead = (mu * layer.forward(values_of)).sum(axis=1)
            if not np.allclose(back, ahead, rtol=1e-9, atol=1e-9):
                return f"layer {k} of a {style} network is not what its transpose is"
            if k <= net.groups:
                values_of[k] = np.maximum(values_of[k], 0)
        if not np.allclose(values_of[len(net.layers)], evaluated(data, points), rtol=1e-4, atol=1e-4):
            return f"a {style} network computes something else"
    return None


def evaluated(data: bytes, points: np.ndarray) -> np.ndarray:
    """By onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    rows = [point.astype(np.float32).reshape(given.shape) for point in points]
    return np.concatenate([session.run(None, {given.name: row})[0].reshape(1, -1) for row in rows])


LAWS: dict[str, Callable[[Kit], str | None]] = {
    "what is false is not accepted": conned,
    "bounds hold": too_tight,
    "no multipliers lift a bound above the truth": too_high,
    "rounding is paid for": unconfirmed,
    "rationals believe nothing": credulous,
    "nodes do not know each other": apart,
    "properties mean what they say": misread,
    "networks compute what they should": other_network,
}
