"""Forged proofs: where a point is unsafe nothing is accepted, however near the proof is to a right one."""

from __future__ import annotations

import functools
import importlib.util
import io
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checker.building import ALL, close, cut, default, members, section, split, values, weights, witness, write_proof
from checker.forging import MISTAKES, Forger, Piece, Problem, Rng, in_pieces, made_false, put_together
from onnx import TensorProto, helper, numpy_helper

from verifier.checker import tree
from verifier.checker.check import REJECTED, check
from verifier.checker.graph import read_network
from verifier.checker.merge import merged
from verifier.checker.stream import Stream
from verifier.checker.tree import Walk
from verifier.checker.vnnlib import Clause, read_property
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.verdict import Verdict

# -- tiny networks, and right proofs about them ------------------------------------------------------------------------


def model(rng: Rng, style: str) -> bytes:
    """Six inputs, two outputs, some ReLUs of one style."""

    def constant(name: str, *shape: int) -> str:
        held.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
        return name

    held: list[Any] = []
    nodes = {
        "dense": [("Gemm", ["X", constant("W", 6, 5), constant("b", 5)], {}), ("Relu", ["0"], {})],
        "leaky": [("Gemm", ["X", "W", "b"], {}), ("LeakyRelu", ["0"], {"alpha": 0.25})],
        "residual": [
            ("Gemm", ["X", "W", "b"], {}),
            ("Relu", ["0"], {}),
            ("MatMul", ["1", constant("U", 5, 5)], {}),
            ("Add", ["2", "0"], {}),
            ("Relu", ["3"], {}),
        ],
        "conv": [("Conv", ["X", constant("K", 2, 1, 2, 2)], {}), ("Relu", ["0"], {}), ("Flatten", ["1"], {})],
        "pool": [
            ("Conv", ["X", "K"], {}),
            ("MaxPool", ["0"], {"kernel_shape": [1, 2]}),
            ("Relu", ["1"], {}),
            ("Flatten", ["2"], {}),
        ],
    }[style]
    width = {"conv": 4, "pool": 2}.get(style, 5)
    made = [helper.make_node(kind, operands, [str(i)], **given) for i, (kind, operands, given) in enumerate(nodes)]
    made.append(helper.make_node("Gemm", [str(len(nodes) - 1), constant("V", width, 2)], ["Y"]))
    shape = [1, 1, 2, 3] if style in ("conv", "pool") else [1, 6]
    ends = [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)]
    ends += [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 2])]
    graph = helper.make_graph(made, style, ends[:1], ends[1:], held)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString())


STYLES = ("dense", "leaky", "residual", "conv", "pool")


def grown(rng: Rng, problem: Problem, depth: int) -> bytes:
    """A tree of splits and cuts, random slopes at its leaves."""
    net = problem.net
    if depth and rng.random() < 0.9:
        if rng.random() < 0.5:
            k = int(rng.integers(1, net.groups + 1))
            node = split(k, int(rng.integers(net.size(k))))
        else:
            node = cut(int(rng.integers(net.n_in)), 0.0)
        return node + default(1, 1) + grown(rng, problem, depth - 1) + default() + grown(rng, problem, depth - 1)
    slopes = [section(k, ALL + values(rng.random(net.size(k)), 0)) for k in range(net.groups, 0, -1)]
    share = float(rng.random())
    return close(0, witness=witness(slopes)) + close(1, weights([share, 1.0 - share]))


def right(seed: int) -> tuple[Problem, bytes]:
    """A problem that a proof shows to have no unsafe point, by a hair."""
    rng = np.random.default_rng(seed)
    net, _ = read_network(model(rng, STYLES[seed % len(STYLES)]))
    centre = rng.normal(size=6) * 0.3
    low, high = np.minimum(centre - 0.5, -0.1), np.maximum(centre + 0.5, 0.1)
    rows = [{("Y", j): Fraction(float(a)) for j, a in enumerate(rng.normal(size=2))} for _ in range(3)]
    far = [{**row, ("", 0): Fraction(1000)} for row in rows]
    problem = Problem(net, [Clause(low, high, tuple(far[:1]), 2), Clause(low, high, tuple(far[1:]), 2)])
    body = b""
    while problem.judge(body)[0] is not None:  # until no leaf is empty, which would need another rule
        body = members([0, 1]) + default(1, 1) + grown(rng, problem, seed % 4)
    walk = problem.walk(body)
    walk.run()
    for number, clause in enumerate(problem.clauses):
        problem = problem.raised(number, [Fraction(walk.margin - 0.01)] * len(clause.rows))
    return problem, body


def climbed(problem: Problem, pieces: list[Piece], rng: Rng, steps: int) -> tuple[Counter[str], bytes | None]:
    """Mistakes upon mistakes, as long as they come further in the tree; and a proof that was accepted, if one was."""
    kinds, tried = list(MISTAKES), Counter[str]()
    best, reached = pieces, 0
    for step in range(steps):
        kind = kinds[int(rng.integers(len(kinds)))] if step else "unchanged"
        try:
            forged = MISTAKES[kind](Forger(problem, best, rng, reached))
        except IndexError:  # this proof has no place for it
            continue
        reason, nodes = problem.judge(put_together(forged))
        tried[kind] += 1
        if reason is None:
            return tried, put_together(forged)
        if nodes > reached and len(forged) > 1:
            best, reached = forged, nodes
    return tried, None


def attacked(
    problem: Problem, body: bytes, seed: int, steps: int, rules: type[Walk] = Walk
) -> tuple[Counter[str], bool]:
    """One clause after the other is made false, at the point that comes nearest to it.  Whether a proof got through."""
    rng = np.random.default_rng(seed)
    pieces, tried = in_pieces(problem, body), Counter[str]()
    for _ in range(max(steps // 50, 1)):
        false = made_false(replace(problem, rules=rules), int(rng.integers(len(problem.clauses))), rng)
        more, accepted = climbed(false, pieces, rng, min(steps, 50))
        tried += more
        if accepted is not None:
            return tried, True
    return tried, False


# -- the laws ----------------------------------------------------------------------------------------------------------

SEEDS, EACH = 20, 100


@functools.cache
def outcome(seed: int) -> tuple[Counter[str], bool]:
    problem, body = right(seed)
    assert problem.judge(body)[0] is None
    return attacked(problem, body, seed, EACH)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_forged_proof_of_a_tiny_network(seed: int) -> None:
    assert not outcome(seed)[1]


def test_there_were_enough_forgeries() -> None:
    total = Counter[str]()
    for seed in range(SEEDS):
        total += outcome(seed)[0]
    assert sum(total.values()) >= 1_900
    assert len(total) >= 25
    assert min(total.values()) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, 4 * SEEDS))
def test_no_forged_proof_of_more_networks(seed: int) -> None:
    problem, body = right(seed)
    assert not attacked(problem, body, seed, 400)[1]


BUNDLED = {
    "boxes": ("toy", "toy_positive"),
    "several clauses": ("cart_controller", "cart_cases"),
}
LONG = {
    "clipped boxes": ("pendulum_lyapunov", "pendulum_decrease"),
    "several rows": ("digits_fc", "fc_joint_1440"),
    "several boxes": ("digits_fc", "fc_boxes_1447"),
    "signs": ("digits_fc", "fc_branch_1438"),
    "residual": ("digits_res", "res_branch_1441"),
}


@dataclass(frozen=True)
class Written:
    """A proof as `verify --proof` writes it."""

    net: Path
    prop: Path
    proof: Path

    def problem(self) -> tuple[Problem, bytes]:
        """With the network that is left, if neurons were merged."""
        net, _ = read_network(self.net.read_bytes())
        with zipfile.ZipFile(self.proof) as archive:
            if "merged.bin" in archive.namelist():
                net = merged(net, Stream(io.BytesIO(archive.read("merged.bin"))))
            return Problem(net, read_property(self.prop.read_text())), archive.read("proof.bin")


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Callable[[str], Written]:
    folder = tmp_path_factory.mktemp("proofs")

    @functools.cache
    def write(case: str) -> Written:
        net, prop = (BUNDLED | LONG)[case]
        found = Written(
            root / "properties" / "onnx" / f"{net}.onnx",
            root / "properties" / "vnnlib" / f"{prop}.vnnlib",
            folder / prop,
        )
        files = GivenFiles(str(found.net), str(found.prop))
        request = Request(files, load_config("auto", ()), Machine("cpu", 1, 60.0), proof=str(found.proof))
        assert decide(request, request.status()).verdict is Verdict.UNSAT
        return found

    return write


@pytest.mark.parametrize("case", [*BUNDLED, *(pytest.param(case, marks=pytest.mark.slow) for case in LONG)])
def test_no_forged_proof_from_those_that_a_search_writes(written: Callable[[str], Written], case: str) -> None:
    problem, body = written(case).problem()
    tried, accepted = attacked(problem, body, 7, 50 if case in BUNDLED else 150)
    assert not accepted
    assert len(tried) >= 15


def test_a_proof_of_another_network_or_property_with_its_digests(
    written: Callable[[str], Written], tmp_path: Path, root: Path
) -> None:
    """Files as they come: the outputs of the network moved, or the property of another instance."""
    given = written("several clauses")
    _, body = given.problem()
    changed = onnx.load(given.net)
    for tensor in changed.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind == "f":
            tensor.CopyFrom(numpy_helper.from_array(-value, tensor.name))
    onnx.save(changed, tmp_path / "n.onnx")
    far = root / "properties" / "vnnlib" / "cart_deviation_far.vnnlib"
    for net, prop in ((tmp_path / "n.onnx", given.prop), (given.net, far)):
        write_proof(tmp_path / "proof", net, prop, body)
        found = check(str(net), str(prop), str(tmp_path / "proof"))
        assert found.verdict == REJECTED
        assert "another" not in str(found.reason)


# -- the forger itself -------------------------------------------------------------------------------------------------

SLIPS = {
    "emptiness that is believed": ("if not scope.lower[k - 1][i] > scope.upper[k - 1][i]:", "if False:"),
    "a clause without a tree": ("if not named.all():", "if False:"),
    "one closing for all clauses": ("left = scope.open - {clause}", "left = frozenset()"),
    "a tolerance": ("if not bound > 0:", "if not bound > -0.5:"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_forger_finds_slips_of_the_rules(tmp_path: Path, slip: str) -> None:
    old, new = SLIPS[slip]
    source = Path(tree.__file__).read_text()
    assert old in source, f"the slip '{slip}' changes nothing"
    path = tmp_path / "slip.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("verifier.checker.slip", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        problems = (right(seed) for seed in range(0, 32, 4))
        assert any(attacked(problem, body, 3, 150, module.Walk)[1] for problem, body in problems), "nobody noticed"
    finally:
        sys.modules.pop(spec.name)
