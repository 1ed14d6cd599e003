"""The fuzzer's oracle: known values, onnxruntime, and two methods that agree."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from fuzzing import instances, simplex
from fuzzing.instances import Case, cases, cross_check, truth_of
from fuzzing.interpreter import RULES, Unknown
from fuzzing.judge import run_file
from fuzzing.networks import random_network
from fuzzing.pieces import ExactNetwork, Row, TooManyPieces, minimum
from fuzzing.programs import MEANINGS
from fuzzing.queries import DIALECTS, Clause, Query, Writer, approximate, decimal
from fuzzing.simplex import HalfSpace, OracleError, minimise
from onnx import TensorProto, helper

from verifier.network.rewrite.normalise import REWRITERS
from verifier.property.vnnlib import load_property

ONE, HALF = Fraction(1), Fraction(1, 2)


def small_model(nodes: list[onnx.NodeProto], n: int, **constants: object) -> onnx.ModelProto:
    """A float32 network from x [1, n] to y."""
    held = [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, n])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def tent() -> ExactNetwork:
    """y = |x_0| - relu(x_1 - 1/2): on [-1, 1]^2 its minimum is -1/2, at (0, 1)."""
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Sub", ["x", "half"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "V"], ["e"]),
        helper.make_node("Sub", ["b", "e"], ["y"]),
    ]
    first, second = np.array([[1.0], [0.0]], np.float32), np.array([[0.0], [1.0]], np.float32)
    return ExactNetwork.of(small_model(nodes, 2, W=first, V=second, half=np.array([0.5], np.float32)))


def test_a_linear_program_with_a_known_answer() -> None:
    spaces = [HalfSpace((ONE, ONE), Fraction(3, 2)), HalfSpace((-ONE, ONE), Fraction(0))]
    found = minimise((-ONE, -2 * ONE), (Fraction(0),) * 2, (ONE,) * 2, spaces)
    assert found is not None
    assert found.value == Fraction(-9, 4)
    assert found.x == (Fraction(3, 4), Fraction(3, 4))
    assert minimise((ONE,), (Fraction(0),), (ONE,), [HalfSpace((ONE,), -ONE)]) is None


def test_a_linear_program_whose_proof_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplex._Dictionary, "solve", lambda self: True)  # stops at the start
    with pytest.raises(OracleError, match="not proved"):
        minimise((-ONE,), (Fraction(0),), (ONE,), [HalfSpace((ONE,), HALF)])


def test_a_minimum_known_by_hand() -> None:
    network, ones = tent(), (ONE, ONE)
    pieces = network.pieces((-ONE, -ONE), ones)
    assert len(pieces) == 6  # the ReLU of x_0 - 1/2 has a kink too
    row = Row((ONE,), (Fraction(0),) * 2, Fraction(0))
    found = minimum(pieces, [row])
    assert found.value == -HALF
    assert found.x == (Fraction(0), ONE)
    assert network.along((-ONE, ONE), ones, [row]) == -HALF
    assert network.along((-ONE, -ONE), ones, [row]) == 0


def test_a_conjunction_is_the_largest_row() -> None:
    network = tent()
    box = (-ONE, -ONE), (ONE, ONE)
    rows = (Row((ONE,), (Fraction(0),) * 2, Fraction(0)), Row((Fraction(0),), (-ONE, Fraction(0)), -HALF))
    # The second row wants x_0 >= 1/2: there y = x_0 - relu(x_1 - 1/2) and 1/2 - x_0 meet at x_0 = 1/2, with value 0.
    truth = truth_of(network, Query((Clause(*box, rows),)))
    assert truth.margin == 0
    assert truth.unsafe
    assert not replace(truth, strict=True).unsafe


@pytest.mark.parametrize("style", ["ordinary", "grid", "double"])
def test_the_interpreter_agrees_with_onnxruntime(style: str) -> None:
    rng, seen = random.Random(style), set()
    for _ in range(60):
        model = random_network(rng, style)
        network = ExactNetwork.of(model)
        x = np.array([rng.gauss(0, 1) for _ in range(network.n_in)], np.float32)
        run = run_file(model, x, optimised=False)
        real = network.at([Fraction(float(v)) for v in x])
        assert run is not None
        assert np.allclose(np.array(run, float), np.array(real, float), rtol=1e-4, atol=1e-3)
        seen |= {node.op_type for node in model.graph.node}
    assert len(seen) > 25


def test_every_supported_operator_has_a_meaning_and_is_generated() -> None:
    made: set[str] = set()
    for number in range(1000):
        made |= {node.op_type for node in random_network(random.Random(number), "ordinary").graph.node}
    smooth = {"Pow", "Softmax", "LogSoftmax", "LayerNormalization"}  # the matter of the fuzzer of functions
    assert smooth <= set(MEANINGS)
    # CastLike is another spelling of Cast; the others move entries, or mix neighbours, as onnxruntime does it.
    moves = {"Resize", "Upsample", "GatherND", "ScatterElements", "ScatterND"}
    supported = set(REWRITERS) - smooth - moves - {"CastLike"}
    assert supported <= set(RULES)
    assert supported <= made


def test_what_the_interpreter_does_not_know_is_refused() -> None:
    for op_type in ("Sigmoid", "Mul"):
        model = small_model([helper.make_node(op_type, ["x"] * (1 + (op_type == "Mul")), ["y"])], 1)
        with pytest.raises(Unknown):
            ExactNetwork.of(model).at([ONE])


def test_too_many_pieces_are_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzing.pieces.MAX_PIECES", 3)
    with pytest.raises(TooManyPieces):
        tent().pieces((-ONE, -ONE), (ONE, ONE))


def test_the_second_method_finds_a_wrong_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    network, ones = tent(), (ONE, ONE)
    clause = Clause((-ONE, -ONE), ones, (Row((ONE,), (Fraction(0),) * 2, Fraction(0)),))
    found = minimum(network.pieces(clause.lower, clause.upper), clause.rows)
    cross_check(network, clause, found, random.Random(0))
    lost = minimum(network.pieces((-ONE, -ONE), ones)[:1], clause.rows)
    assert lost.value != found.value
    with pytest.raises(OracleError, match=r"a segment goes below|a point lies below"):
        cross_check(network, clause, lost, random.Random(0))


def test_the_same_seed_gives_the_same_instance() -> None:
    first, second, other = cases(3, 5), cases(3, 5), cases(4, 5)
    assert [c.query for c in first] == [c.query for c in second]
    assert first[0].model.SerializeToString() == second[0].model.SerializeToString()
    assert first[0].model.SerializeToString() != other[0].model.SerializeToString()


def test_margins_are_those_of_the_written_query() -> None:
    for number in range(6):
        for case in cases(11, number, 2):
            assert truth_of(ExactNetwork.of(case.model), case.query).margin == case.truth.margin


def test_gaps_are_met_up_to_their_rounding() -> None:
    assert {abs(g) for g in instances.GAPS} == {Fraction(0), *(Fraction(1, 10**k) for k in (3, 6, 9, 12))}
    for number in range(5):
        for case in cases(12, number, 3):
            assert (case.truth.margin > 0) == (case.gap > 0) or not case.gap


@cache
def written() -> list[Case]:
    """Queries of ordinary size."""
    return [case for number in range(10) for case in cases(5, number, 1) if case.style_is_ordinary]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_texts_are_read_as_they_were_meant(dialect: str, tmp_path: Path) -> None:
    for number, case in enumerate(written()):
        query = replace(case.query, dialect=dialect)
        path = tmp_path / f"{number}.vnnlib"
        path.write_text(Writer(query, case.shape, random.Random(number)).text())
        prop = load_property(path)
        for clause in query.clauses:
            for x in (clause.lower, clause.upper):
                y = [Fraction(k, 3) for k in range(len(clause.rows[0].y))]
                mine = [all(row.holds(x, y) for row in c.rows) for c in query.clauses if c.contains(x)]
                theirs = [all(row.holds(x, y) for row in c.rows.exact) for c in prop.clauses]
                assert any(theirs) or not any(mine)
        assert len(prop.clauses) == len(query.clauses)


def test_decimals_are_exact() -> None:
    assert decimal(Fraction(1, 8)) == "0.125"
    assert decimal(Fraction(-5, 2)) == "-2.5"
    assert decimal(Fraction(1, 8), scientific=True) == "125e-3"
    assert decimal(Fraction(7)) == "7"
    assert decimal(Fraction(-1, 3)) == "(/ -1 3)"


def test_numbers_of_any_size_can_be_shown() -> None:
    assert approximate(Fraction(1, 3)) == "1/3"
    assert approximate(Fraction(-(10**400), 3)) == "-3.3333e+399"
    assert approximate(Fraction(2, 3 * 10**500)) == "6.6667e-501"
