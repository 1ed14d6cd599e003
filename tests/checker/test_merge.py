"""Merged neurons in the checker: what it accepts computes the same, to the last bit, and what does not is rejected."""

from __future__ import annotations

import functools
import importlib.util
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from checker.building import (
    CONSTANT,
    members,
    merged_group,
    merged_output,
    mirrors,
    network_of,
    repeats,
    varint,
)
from mirrored import N_IN, STYLES, Rng, model

from verifier.checker import merge
from verifier.checker.graph import read_network
from verifier.checker.maps import Dense, Map, Scale, Select, Sparse, Windows
from verifier.checker.network import Network
from verifier.checker.rationals import Array, Rationals
from verifier.checker.stream import Rejected, Stream
from verifier.network.merge import LayerMerge, merging
from verifier.network.models.onnx import load_onnx
from verifier.proofs.merges import merges


def merged(net: Network, claims: bytes, rules: ModuleType = merge) -> Network:
    found = rules.merged(net, Stream(io.BytesIO(claims)))
    assert isinstance(found, Network)
    return found


def outputs(net: Network, x: Array) -> list[list[Fraction]]:
    """At points [m, n0], in rationals."""
    values = {0: Rationals.of(x)}
    for k, layer in enumerate(net.layers, start=1):
        values[k] = layer.exact_bias + layer.forward(values)
        if k <= net.groups:
            values[k] = np.maximum(values[k], 0)
    found = values[len(net.layers)].fractions
    return np.broadcast_to(found, (len(x), found.shape[1])).tolist()


def points(count: int) -> Array:
    return np.random.default_rng(0).integers(-64, 65, (count, N_IN)) / 16


def same_function(a: Network, b: Network) -> bool:
    return outputs(a, points(12)) == outputs(b, points(12))


# -- what is right -----------------------------------------------------------------------------------------------------

MAPS: dict[str, Callable[[Rng], Map]] = {
    "select": lambda rng: Select(rng.integers(-1, 5, 7), 5),
    "scale": lambda rng: Scale(rng.integers(-2, 3, 5) / 2, 2.0 ** rng.integers(-2, 3, 5)),
    "dense": lambda rng: Dense(rng.integers(-1, 2, (3, 4)) / 2, count=2),
    "sparse": lambda rng: Sparse((3, 4), np.array([2, 0, 2]), np.array([0, 3, 1]), rng.choice([-0.5, 0.5, 1.0], 3)),
    "windows": lambda rng: Windows(rng.integers(-1, 2, (2, 3, 4)) / 2, rng.integers(-1, 5, (3, 2)), 5),
}


@pytest.mark.parametrize("kind", MAPS)
def test_triples_are_the_entries_of_the_matrix(kind: str) -> None:
    for seed in range(5):
        linear = MAPS[kind](np.random.default_rng(seed))
        found = np.zeros((linear.n_out, linear.n_in))
        rows, columns, weights = linear.triples()
        np.add.at(found, (rows, columns), weights.astype(float))
        assert np.array_equal(found, linear.forward(np.eye(linear.n_in)).T)
        assert np.array_equal(found, linear.transpose(np.eye(linear.n_out)))
        assert (weights != 0).all()


@dataclass(frozen=True, eq=False)
class Merge:
    """A network as the checker reads it, what the search has merged, and the network of the search."""

    net: Network
    layers: tuple[LayerMerge, ...]
    sizes: list[int]
    sources: list[list[int]]

    @property
    def claims(self) -> bytes:
        return merges(self.layers)


@functools.cache
def by_search(folder: Path, style: str, seed: int) -> Merge:
    path = folder / f"{style}{seed}.onnx"
    path.write_bytes(model(N_IN, STYLES[style](np.random.default_rng(seed))).SerializeToString())
    done = merging(load_onnx(path).network())
    net, _ = read_network(path.read_bytes())
    sources = [[source for source, _ in layer.terms] for layer in done.network.layers]
    return Merge(net, done.layers, [layer.size for layer in done.network.layers], sources)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("merged")


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("style", STYLES)
def test_what_the_search_merges_is_accepted_and_computes_the_same(folder: Path, style: str, seed: int) -> None:
    given = by_search(folder, style, seed)
    assert given.layers
    found = merged(given.net, given.claims)
    assert [layer.size for layer in found.layers] == given.sizes
    if style != "short":  # whose output may read nothing
        assert [layer.sources for layer in found.layers] == given.sources
    assert sum(given.sizes) < sum(layer.size for layer in given.net.layers)
    assert same_function(found, given.net)


def test_what_is_left_of_a_lattice(folder: Path) -> None:
    """Of 20 neurons three: one for each minimum, and linear functions are read from the input."""
    found = merged(by_search(folder, "lattice", 0).net, by_search(folder, "lattice", 0).claims)
    assert [layer.size for layer in found.layers[:-1]] == [2, 1]
    assert [layer.sources for layer in found.layers] == [[0], [0, 1], [0, 1, 2]]


# -- what is wrong -----------------------------------------------------------------------------------------------------


def pair(weight: float = 1.0, bias: float = 0.5) -> Network:
    """y = |x_0 - x_1 - 1/2| and more: the second neuron mirrors the first, the third repeats it, the fourth is one."""
    rows = [[1.0, -1.0], [-weight, 1.0], [1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]
    group = [(0, np.array(rows)), np.array([-0.5, bias, -0.5, 1.0, 0.0])]
    return network_of(2, [group, [(1, np.array([[1.0, 1.0, 1.0, 1.0, 1.0]]))]])


RIGHT = {1: mirrors(0), 2: repeats(0), 3: CONSTANT}
NEXT = float(np.nextafter(1.0, 2.0))

WRONG: dict[str, tuple[bytes, str]] = {
    "sign": (merged_group({**RIGHT, 1: repeats(0)}, [0, 4]) + merged_output(), "neuron 1 does not repeat neuron 0"),
    "other sign": (
        merged_group({**RIGHT, 2: mirrors(0)}, [0, 4]) + merged_output(),
        "neuron 2 does not mirror neuron 0",
    ),
    "index": (merged_group({**RIGHT, 2: repeats(4)}, [0, 4]) + merged_output(), "neuron 2 does not repeat neuron 4"),
    "no index": (merged_group({**RIGHT, 2: repeats(5)}, [0, 4]) + merged_output(), "no code of a merged neuron 11"),
    "itself": (merged_group({**RIGHT, 0: repeats(0)}, [4]) + merged_output(), "neuron 0 does not stand for itself"),
    "cycle": (merged_group({0: repeats(2), 2: repeats(0)}, [1, 3, 4]) + merged_output(), "does not stand for itself"),
    "chain": (merged_group({1: mirrors(2), 2: repeats(0)}, [0, 3, 4]) + merged_output(), "does not stand for itself"),
    "no constant": (merged_group({**RIGHT, 4: CONSTANT}, [0]) + merged_output(), "neuron 4 is not constant"),
    "left and merged": (merged_group(RIGHT, [0, 1, 4]) + merged_output(), "merged and left at once"),
    "read": (merged_group(RIGHT, [0]) + merged_output(), "neuron 4 of group 1 is left out, but it is read"),
    "read by a product": (merged_group(RIGHT, [0]) + merged_output(False), "neuron 4 of group 1 is left out"),
    "twice": (
        varint(1) + varint(3) + varint(2) + varint(1) + varint(2**63 - 1) + b"\x02\x02" + members([0]),
        "no distance",
    ),
    "form": (varint(2) + merged_group(RIGHT, [0, 4])[1:] + merged_output(), "no form"),
    "too short": (merged_group(RIGHT, [0, 4]), "ends too early"),
    "too long": (merged_group(RIGHT, [0, 4]) + merged_output() + b"\0", "more is said"),
    "another group": (merged_group({}, [0, 1, 2, 3, 4]) + merged_group({0: CONSTANT}, []), "more is said"),
}


def test_a_right_claim_is_accepted() -> None:
    found = merged(pair(), merged_group(RIGHT, [0, 4]) + merged_output())
    assert [layer.size for layer in found.layers] == [2, 1]
    assert same_function(found, pair())
    matrices = {source: chain.forward(np.eye(chain.n_in)).T.tolist() for source, chain in found.layers[-1].terms}
    assert matrices == {0: [[-1.0, 1.0]], 1: [[3.0, 1.0]]}
    assert found.layers[-1].bias.tolist() == [[1.5]]


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_claims_are_rejected_with_a_reason(kind: str) -> None:
    claims, reason = WRONG[kind]
    with pytest.raises(Rejected, match=reason):
        merged(pair(), claims)


@pytest.mark.parametrize(
    "net", [pair(weight=NEXT), pair(bias=0.5 * NEXT), pair(bias=-0.5)], ids=["weight", "bias", "bias sign"]
)
def test_one_unit_in_the_last_place_is_not_the_same(net: Network) -> None:
    with pytest.raises(Rejected, match="what is merged in layer 1: neuron 1 does not mirror neuron 0"):
        merged(net, merged_group({1: mirrors(0)}, [0, 2, 3, 4]) + merged_output())


def test_numbers_that_are_no_floats_are_not_multiplied_out() -> None:
    """3 (1 + 2^-52) 2^-51 + ... has more than 53 bits: as a product it is right, as a matrix it would be rounded."""
    wide = np.array([[1.0 + 2.0**-30], [-1.0 - 2.0**-30], [1.0]])
    net = network_of(1, [[(0, wide)], [(1, np.array([[0.0, 1.0 + 2.0**-40, 1.0]]))]])
    group = merged_group({1: mirrors(0)}, [0, 2])
    with pytest.raises(Rejected, match="no float"):
        merged(net, group + merged_output())
    found = merged(net, group + merged_output(False))
    x = np.array([[-0.75]])
    assert outputs(found, x) == outputs(net, x)


def test_roots_are_no_rationals() -> None:
    net = pair()
    layer = net.layers[0]
    ((source, chain),) = layer.terms
    root = chain.then(Scale(np.ones(5), np.ones(5), roundings=3))
    doubtful = Network(2, (replace(layer, terms=((source, root),)), net.layers[1]))
    with pytest.raises(Rejected, match="no rationals"):
        merged(doubtful, merged_group(RIGHT, [0, 4]) + merged_output())


# -- whoever claims what -----------------------------------------------------------------------------------------------


def forged(given: Merge, rng: Rng) -> Iterator[bytes]:
    """Claims near the right ones: neurons that are merged with others, or not at all, or left out, in any form."""
    parts = []
    for layer in given.layers[:-1]:
        n, alone = len(layer.kept), layer.classes.alone.tolist()
        others = {
            i: CONSTANT if s < 0 else (mirrors(s) if mirrored else repeats(s))
            for i, (s, mirrored) in enumerate(zip(layer.classes.standing.tolist(), layer.classes.mirrored, strict=True))
            if not alone[i]
        }
        kept = set(np.flatnonzero(layer.kept.numpy()).tolist())
        if rng.random() < 0.4:
            i, s = (int(rng.integers(n)) for _ in range(2))
            others[i] = int(rng.choice([CONSTANT, repeats(s), mirrors(s)]))
            kept.discard(i)
        if rng.random() < 0.3:
            i = int(rng.integers(n))
            others.pop(i, None)
            kept.add(i)
        if rng.random() < 0.2:
            kept.discard(int(rng.integers(n)))
        parts.append(merged_group(others, sorted(kept - others.keys()), layer.multiplied ^ bool(rng.random() < 0.2)))
    yield b"".join(parts) + merged_output(given.layers[-1].multiplied ^ bool(rng.random() < 0.2))
    raw = bytearray(given.claims)
    for _ in range(1 + rng.integers(2)):
        raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    yield bytes(raw)


def outcomes(folder: Path, rules: ModuleType) -> Iterator[bool | None]:
    """Of forged claims: whether those that are accepted leave the function as it is; None if they are rejected."""
    for seed in range(8):
        for style in STYLES:
            given, rng = by_search(folder, style, seed), np.random.default_rng(seed)
            for claims in (claims for _ in range(6) for claims in forged(given, rng)):
                try:
                    found = merged(given.net, claims, rules)
                except Exception:  # as the checker: whatever was not foreseen rejects
                    yield None
                    continue
                yield same_function(found, given.net)


def test_no_claim_changes_the_function(folder: Path) -> None:
    found = Counter(outcomes(folder, merge))
    assert found[False] == 0
    assert found[True] >= 30  # the law says something
    assert found[None] >= 200


SLIPS = {
    "nothing is compared": ("if rows[i] != (", "if rows[i] is ("),
    "signs do not matter": ("{place: -value for place, value in rows[s].items()} if mirrors", "rows[i] if mirrors"),
    "mirrors lose their linear part": ("        if mirrors:\n            _add", "        if False:\n            _add"),
    "constants pass": ("if not rows[i].keys() <= {(ONE, 0)}:", "if False:"),
    "constants are not cut at zero": ("rows[i].items() if value > 0}", "rows[i].items()}"),
    "what is left out is zero": ("if gone:", "entries = [e for e in entries if e[1] in places]\n    if False:"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slips_of_the_rule_are_noticed(folder: Path, tmp_path: Path, slip: str) -> None:
    old, new = SLIPS[slip]
    source = Path(merge.__file__).read_text()
    assert old in source, f"the slip '{slip}' changes nothing"
    path = tmp_path / "slip.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("verifier.checker.slip_of_merging", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        assert False in outcomes(folder, module), "nobody noticed"
    finally:
        sys.modules.pop(spec.name)
