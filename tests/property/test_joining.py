"""Properties of several networks: the joint network is that of the files, and verdicts are those of enumeration."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from property.joints import declared, forward, least, random_weights, saved

import verifier
from verifier import pipeline
from verifier.config import load_config
from verifier.errors import InputError
from verifier.falsify.real import RationalNetwork, RealArithmetic
from verifier.loading import GivenFiles, load_networks
from verifier.naming import networks_of, paths_of, text_of, with_paths
from verifier.network.judge import check_against
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network
from verifier.property.joining import JointModel, joint_network
from verifier.property.joint import LinearSum, ProductTerm
from verifier.property.vnnlib import load_property, parse
from verifier.result.counterexample import replay
from verifier.result.verdict import Verdict

PAIR = declared([("f", "", 3, 2), ("g", "(equal-to f)", 3, 2)])
BOX = "(assert (and (<= -1 X_f[0,0] 1) (<= -1 X_f[0,1] 1) (<= -1 X_f[0,2] 1)))"
SAME = "(assert (== X_f[0,1] X_g[0,1]))(assert (== X_g[0,2] X_f[0,2]))"


def ran(path: Path, x: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of one point, by a session of its own."""
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x.astype(np.float32).reshape(1, -1)})[0]).reshape(-1)


# -- reading -------------------------------------------------------------------------------------------------


def test_equal_inputs_are_one() -> None:
    found = parse(PAIR + BOX + SAME + "(assert (<= -1 X_g[0,0] 0.5))(assert (< Y_f[0] Y_g[0]))")
    assert (found.n_x, found.n_y) == (4, 4)
    assert found.joint is not None
    assert found.joint.shared == (0, 1, 2, 3, 1, 2)
    assert [network.equal_to for network in found.joint.networks] == [None, "f"]
    assert found.boxes.upper[0].tolist() == [1.0, 1.0, 1.0, 0.5]
    (row,) = found.clauses[0].rows.exact
    assert (row.y, row.x, row.strict) == (((0, Fraction(1)), (2, Fraction(-1))), (), True)


def test_bounds_of_equal_inputs_meet() -> None:
    found = parse(
        PAIR + BOX + SAME + "(assert (== X_f[0,0] X_g[0,0]))(assert (<= 0.25 X_g[0,1]))(assert (<= Y_f[0] Y_g[1]))"
    )
    assert found.n_x == 3
    assert found.boxes.lower[0].tolist() == [-1.0, 0.25, -1.0]


def test_equality_in_one_of_several_cases_is_a_pair_of_rows() -> None:
    text = PAIR + BOX + "(assert (and (<= -1 X_g[0,0] 1) (<= -1 X_g[0,1] 1) (<= -1 X_g[0,2] 1)))"
    found = parse(text + "(assert (or (== X_f[0,0] X_g[0,0]) (<= Y_f[0] Y_g[0])))")
    assert found.n_x == 6
    assert [len(clause.rows) for clause in found.clauses] == [2, 1]


def test_bounds_that_an_order_implies() -> None:
    """X_g[0] is below X_f[0] and has no upper bound of its own."""
    found = parse(PAIR + BOX + SAME + "(assert (<= -1 X_g[0,0] X_f[0,0]))(assert (Y_f[1] < Y_g[1]))")
    assert found.boxes.upper[0].tolist() == [1.0, 1.0, 1.0, 1.0]
    with pytest.raises(InputError, match=r"X_g\[0,0\] has no lower bound"):
        parse(PAIR + BOX + SAME + "(assert (<= X_g[0,0] X_f[0,0]))(assert (Y_f[1] < Y_g[1]))")


def test_a_chain_of_orders_implies_bounds() -> None:
    text = declared([("f", "", 3, 1)]) + "(assert (and (<= 0 X_f[0,0]) (<= X_f[0,0] X_f[0,1] X_f[0,2] 5)))"
    found = parse(text + "(assert (<= (+ X_f[0,2] (* 2 X_f[0,1])) 9))(assert (<= Y_f[0] 0))")
    assert found.boxes.lower[0].tolist() == [0.0, 0.0, 0.0]
    assert found.boxes.upper[0].tolist() == [5.0, 5.0, 5.0]


def test_not_equal_is_two_cases() -> None:
    found = parse(PAIR + BOX + SAME + "(assert (== X_f[0,0] X_g[0,0]))(assert (!= Y_f[0] Y_g[0]))")
    assert [clause.rows.exact[0].strict for clause in found.clauses] == [True, True]
    assert len(found.clauses) == 2


def test_products_are_outputs() -> None:
    one = declared([("f", "", 2, 1)]) + "(assert (and (<= 0 X_f[0,0] 1) (<= 0 X_f[0,1] 1)))"
    found = parse(one + "(assert (<= (* X_f[0,0] Y_f[0] 2) (* (+ X_f[0,1] 0.1) (+ X_f[0,1] 0.1))))")
    assert found.joint is not None
    assert (found.n_y, len(found.joint.products)) == (3, 2)
    first, second = found.joint.products
    assert first != second
    assert second.first == second.second == LinearSum((), ((1, Fraction(1)),), Fraction(1, 10))
    x, y = [Fraction(1, 2), Fraction(1, 4)], [Fraction(3)]
    assert found.joint.completed(x, y) == [3, Fraction(3, 2), Fraction(49, 400)]


def test_a_product_of_three_is_a_product_of_a_product() -> None:
    one = declared([("f", "", 1, 1)]) + "(assert (<= 0 X_f[0,0] 1))"
    found = parse(one + "(assert (<= (* X_f[0,0] X_f[0,0] Y_f[0]) (* X_f[0,0] X_f[0,0])))")
    assert found.joint is not None
    assert len(found.joint.products) == 2  # the square is there once
    assert found.joint.completed([Fraction(3)], [Fraction(5)]) == [5, 9, 45]


# -- the joint network -------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_joint_networks_agree_with_each_file(seed: int) -> None:
    """In rational arithmetic, with products: what is lowered is what the files and the property define."""
    generator = np.random.default_rng(seed)
    shapes = [[2, 3, 2], [2, 4, 3, 1]]
    weights = [random_weights(sizes, generator) for sizes in shapes]
    index = [generator.integers(0, 3, 2) for _ in weights]
    index[1][0] = 2
    term = LinearSum(((0, Fraction(1, 2)), (2, Fraction(-1))), ((1, Fraction(3, 10)),), Fraction(1, 8))
    products = [ProductTerm(term, term), ProductTerm(LinearSum(((3, Fraction(1)),), (), Fraction(0)), term)]
    nets = [_lowered(w) for w in weights]
    joint = joint_network([("f", nets[0], index[0]), ("g", nets[1], index[1])], 3, products)
    assert (joint.n_in, joint.n_out) == (3, 5)
    x = (generator.integers(-16, 17, 3) / 8.0).tolist()
    exact = [Fraction(v) for v in x]
    y = [v for w, i in zip(weights, index, strict=True) for v in forward(w, [exact[k] for k in i])]
    square = term.value(exact, y) ** 2
    y += [square, square * term.value(exact, y)]
    found = joint.forward(torch.tensor([x], dtype=torch.float64))[0]
    np.testing.assert_allclose(found.numpy(), [float(v) for v in y], rtol=1e-13, atol=1e-13)


def _lowered(weights: list[tuple[np.ndarray, np.ndarray]]) -> Network:
    from torch import nn

    from verifier.network.models.module import ModuleModel

    layers: list[nn.Module] = []
    for matrix, bias in weights:
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], dtype=torch.float64)
        linear.weight.data, linear.bias.data = torch.from_numpy(matrix), torch.from_numpy(bias)
        layers += [linear, nn.ReLU()]
    return ModuleModel(nn.Sequential(*layers[:-1]), (1, weights[0][0].shape[1])).network()


def test_joint_model_runs_both_files(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    f = saved(tmp_path / "f.onnx", random_weights([3, 5, 2], generator))
    g = saved(tmp_path / "g.onnx", random_weights([3, 4, 2], generator))
    head = declared([("f", "", 3, 2), ("g", "(isomorphic-to f)", 3, 2)])
    prop = parse(head + BOX + SAME + "(assert (<= -1 X_g[0,0] 1))(assert (<= Y_f[0] (* X_g[0,0] Y_g[1])))")
    model = load_networks(text_of([("f", str(f)), ("g", str(g))]), prop)
    assert isinstance(model, JointModel)
    assert (model.n_in, model.n_out) == (4, 5)
    points = generator.uniform(-1, 1, (6, 4)).astype(np.float32)
    for x, y in zip(points, model.run(points), strict=True):
        np.testing.assert_allclose(y[:2], ran(f, x[:3]), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(y[2:4], ran(g, x[[3, 1, 2]]), rtol=1e-6, atol=1e-6)
        assert y[4] == pytest.approx(float(x[3]) * float(y[3]))
        np.testing.assert_allclose(model.run(x), y, rtol=1e-6, atol=1e-6)
    network = model.network()
    check_against(model, network, (prop.boxes.lower, prop.boxes.upper), seed=1, count=12)


# -- verdicts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_verdicts_of_random_pairs_are_those_of_enumeration(tmp_path: Path, seed: int) -> None:
    """Two networks of few ReLUs that share an input: thresholds on both sides of the exact minimum."""
    generator = np.random.default_rng(seed)
    sizes = [2, 3, 2]
    weights = [random_weights(sizes, generator) for _ in range(2)]
    files = [saved(tmp_path / f"{name}.onnx", w) for name, w in zip("fg", weights, strict=True)]
    objective = generator.integers(-4, 5, 4) / 2.0
    objective[0], objective[3] = 1.0, -1.0
    ordered = seed % 2 == 0
    rows = [([-1.0, 0.0, 1.0], 0.0)] if ordered else []  # X_g[0] <= X_f[0]
    minimum = least([(weights[0], [0, 1]), (weights[1], [2, 1])], objective, [(-1, 1)] * 3, rows)
    head = declared([("f", "", 2, 2), ("g", "(isomorphic-to f)", 2, 2)])
    head += "(assert (and (<= -1 X_f[0,0] 1) (<= -1 X_f[0,1] 1) (<= -1 X_g[0,0] 1) (== X_f[0,1] X_g[0,1])))"
    head += "(assert (>= X_f[0,0] X_g[0,0]))" if ordered else ""
    words = ["Y_f[0]", "Y_f[1]", "Y_g[0]", "Y_g[1]"]
    total = " ".join(f"(* {a!r} {word})" for a, word in zip(objective.tolist(), words, strict=True))
    for offset, expected in ((-1e-2, Verdict.UNSAT), (1e-2, Verdict.SAT)):
        text = head + f"(assert (<= (+ {total}) {minimum + offset:.9f}))"
        path = tmp_path / "p.vnnlib"
        path.write_text(text)
        for attacks in (True, False):
            config = load_config("auto", [f"falsify.enabled={str(attacks).lower()}"])
            nets = {"f": files[0], "g": files[1]}
            result = verifier.verify(nets, path, config=config, threads=1, timeout=30)
            assert result.verdict is expected
        if result.counterexample is None:
            continue
        x, y = result.counterexample.declared
        assert x[1] == x[3]
        np.testing.assert_allclose(y[:2], ran(files[0], x[:2]), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(y[2:], ran(files[1], x[2:]), rtol=1e-6, atol=1e-6)
        exact = forward(weights[0], [Fraction(v) for v in x[:2].tolist()])
        exact += forward(weights[1], [Fraction(v) for v in x[2:].tolist()])
        assert sum(Fraction(a) * v for a, v in zip(objective.tolist(), exact, strict=True)) <= minimum + offset + 1e-6
        assert not ordered or x[0] >= x[2]


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_with_products(tmp_path: Path, seed: int) -> None:
    """y x <= c over a box of one input: the minimum of a piecewise quadratic, found on a fine grid."""
    generator = np.random.default_rng(seed)
    weights = random_weights([1, 3, 1], generator)
    net = saved(tmp_path / "f.onnx", weights)
    grid = [Fraction(k, 1024) - 1 for k in range(2049)]
    values = [float(x * forward(weights, [x])[0] + x * x) for x in grid]
    head = declared([("f", "", 1, 1)]) + "(assert (<= -1 X_f[0,0] 1))"
    path = tmp_path / "p.vnnlib"
    for offset, expected in ((-0.05, Verdict.UNSAT), (0.05, Verdict.SAT)):
        product = "(+ (* X_f[0,0] Y_f[0]) (* X_f[0,0] X_f[0,0]))"
        path.write_text(head + f"(assert (<= {product} {min(values) + offset:.9f}))")
        result = verifier.verify(net, path, threads=1, timeout=30)
        assert result.verdict is expected
        if result.counterexample is not None:
            (x,), (y,) = result.counterexample.declared
            assert float(x) * float(y) + float(x) ** 2 <= min(values) + offset
            assert result.witness is not None
            assert len(result.witness.splitlines()) == 4  # the product is no tensor of the property


def test_copies_with_equal_inputs_agree(tmp_path: Path) -> None:
    """Of two copies on the same inputs nothing but rounding can differ: with a margin that is proved."""
    net = saved(tmp_path / "f.onnx", random_weights([3, 4, 4, 2], np.random.default_rng(5)))
    path = tmp_path / "p.vnnlib"
    same = BOX + SAME + "(assert (== X_f[0,0] X_g[0,0]))"
    path.write_text(PAIR + same + "(assert (or (>= Y_f[0] (+ Y_g[0] 0.001)) (<= Y_f[1] (- Y_g[1] 0.001))))")
    assert verifier.verify(net, path, threads=1, timeout=30).verdict is Verdict.UNSAT


# -- which file is which -----------------------------------------------------------------------------------


def test_names_of_networks() -> None:
    text = "[('f', 'a.onnx'), ('g', 'b.onnx')]"
    assert networks_of(text) == (("f", "a.onnx"), ("g", "b.onnx"))
    assert networks_of("[odd] name.onnx") is None
    assert paths_of(text) == ("a.onnx", "b.onnx")
    assert with_paths(text, str.upper) == text_of([("f", "A.ONNX"), ("g", "B.ONNX")])
    assert with_paths("a.onnx", str.upper) == "A.ONNX"
    for bad in ("[('f',)]", "[('f', 'a'), ('f', 'b')]", "[('f', 3)]", "[(", "[('f', 'a.onnx') for x in y]"):
        with pytest.raises(InputError):
            networks_of(bad)


def test_every_network_needs_a_file_that_fits(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    f, other = (saved(tmp_path / f"{n}.onnx", random_weights([3, n, 2], generator)) for n in (4, 5))
    wide = saved(tmp_path / "wide.onnx", random_weights([4, 3, 2], generator))
    rest = BOX + SAME + "(assert (== X_f[0,0] X_g[0,0]))(assert (<= Y_f[0] Y_g[1]))"
    equal, alike = tmp_path / "equal.vnnlib", tmp_path / "alike.vnnlib"
    equal.write_text(PAIR + rest)
    alike.write_text(PAIR.replace("equal-to", "isomorphic-to") + rest)
    single = tmp_path / "single.vnnlib"
    single.write_text(declared([("f", "", 3, 2)]) + BOX + "(assert (<= Y_f[0] 0))")

    def load(prop: Path, *pairs: tuple[str, Path]) -> None:
        text = text_of([(name, str(path)) for name, path in pairs]) if len(pairs) > 1 else str(pairs[0][1])
        GivenFiles(text, str(prop)).load()

    load(equal, ("f", f))
    load(equal, ("f", f), ("g", f))
    load(alike, ("f", f), ("g", other))
    for prop, pairs, message in (
        (alike, [("f", f)], "speaks of 2 networks, give each its file: verify f=NET g=NET PROP"),
        (equal, [("f", f), ("g", other)], "'g' is equal to 'f', but another file is given for it"),
        (equal, [("f", f), ("h", f)], "a network 'h' is given, but the property declares f, g"),
        (single, [("f", f), ("g", f)], "2 networks are given, but the property speaks of one"),
        (alike, [("f", f), ("g", wide)], "has 4 inputs, but the property declares 3 inputs for 'g'"),
    ):
        with pytest.raises(InputError, match=message.replace("(", r"\(")):
            load(prop, *pairs)


def test_networks_of_other_precisions_are_refused(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    f = saved(tmp_path / "f.onnx", random_weights([3, 4, 2], generator))
    g = saved(tmp_path / "g.onnx", random_weights([3, 4, 2], generator), dtype=11)
    prop = parse(PAIR.replace("equal-to", "isomorphic-to") + BOX + SAME + "(assert (<= -1 X_g[0,0] 1 Y_f[0]))")
    with pytest.raises(InputError, match="different precisions"):
        load_networks(text_of([("f", str(f)), ("g", str(g))]), prop)


def test_no_proof_of_several_networks(tmp_path: Path) -> None:
    net = saved(tmp_path / "f.onnx", random_weights([3, 4, 2], np.random.default_rng(1)))
    prop = tmp_path / "p.vnnlib"
    prop.write_text(PAIR + BOX + SAME + "(assert (<= -1 X_g[0,0] 1))(assert (<= Y_f[0] (- Y_g[0] 90)))")
    request = pipeline.Request(GivenFiles(str(net), str(prop)), load_config("auto"), proof=str(tmp_path / "p.proof"))
    with pytest.raises(InputError, match="run without --proof"):
        pipeline.decide(request, request.status())
    assert not (tmp_path / "p.proof").exists()


# -- the samples of VNN-LIB 2.0 ----------------------------------------------------------------------------


def test_all_samples_load(benchmarks: Path) -> None:
    """Every file of the samples, with the networks that its list names."""
    import csv

    folder = benchmarks / "vnnlib2_samples"
    if not folder.is_dir():
        pytest.skip("the samples of VNN-LIB 2.0 are not here")
    rows = list(csv.reader((folder / "instances.csv").read_text().splitlines()))
    assert len(rows) == 12
    joint = 0
    for network, name, _ in rows:
        prop = load_property(folder / name)
        model = load_networks(with_paths(network, lambda path: str(folder / path)), prop)
        assert (model.n_in, model.n_out) == (prop.n_x, prop.n_y)
        joint += prop.joint is not None
        check_against(model, model.network(), (prop.boxes.lower, prop.boxes.upper), count=4)
    assert joint == 3


def test_the_cruise_control_is_unsafe_in_its_own_run_only(benchmarks: Path) -> None:
    """It saturates at the float32 number next to 100.001, which is below it; rounding in its run goes above it."""
    folder = benchmarks / "vnnlib2_samples"
    if not folder.is_dir():
        pytest.skip("the samples of VNN-LIB 2.0 are not here")
    prop = load_property(folder / "vnnlib" / "adaptive_cruise_control_instance_1.vnnlib")
    name = "acc-2000000-64-64-64-64-retrain-100000-200000-0.9.onnx"
    model = load_networks(str(folder / "onnx" / name), prop)
    point, border = np.array([40.0, -40.0], np.float32), Fraction("100.001")
    exact = RationalNetwork.of(load_onnx(folder / "onnx" / name).network())
    assert exact is not None
    assert exact.forward(point.tolist()) == [Fraction(float(np.float32(100.001)))]
    assert Fraction(float(np.float32(100.001))) < border < Fraction(float(model.run(point)[0]))
    real = RealArithmetic(model.network(), prop)
    witness = replay(point, model, prop, 0, real.confirms)
    assert witness is not None
    assert not witness.sharp
