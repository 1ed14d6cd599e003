"""Whole runs on tiny networks of functions, at jumps, at the ends of their values, and where they have none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verifier
from verifier.config import load_config
from verifier.errors import InputError
from verifier.result.verdict import Verdict

SETTINGS = {
    "race": ["search.max_domains=20"],
    "boxes": ["falsify.enabled=false", "search.splitting=inputs", "search.max_domains=20"],
    "points": ["falsify.enabled=false", "search.splitting=relus", "search.max_domains=20"],
}
Box = tuple[float, float]
Node = tuple[str, Sequence[str], str]


def network(nodes: Sequence[Node], n: int = 1, outputs: int = 1, **constants: float) -> onnx.ModelProto:
    """From `x` to `y`; constants are numbers."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, m]) for name, m in (("x", n), ("y", outputs))]
    held = [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()]
    made = [helper.make_node(kind, list(reads), [name]) for kind, reads, name in nodes]
    graph = helper.make_graph(made, "tiny", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def chain(*kinds: str) -> onnx.ModelProto:
    """One function after the other."""
    names = ["x", *(f"v{i}" for i in range(len(kinds) - 1)), "y"]
    return network([(kind, [names[i]], names[i + 1]) for i, kind in enumerate(kinds)])


def verdict(folder: Path, made: onnx.ModelProto, box: Sequence[Box], unsafe: str, setting: str) -> Verdict | None:
    """What a run says; None if it refuses the network."""
    (folder / "net.onnx").write_bytes(made.SerializeToString())
    outputs = made.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    text = [f"(declare-const X_{i} Real)" for i in range(len(box))]
    text += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    text += [f"(assert (>= X_{i} {low:.60f}))(assert (<= X_{i} {high:.60f}))" for i, (low, high) in enumerate(box)]
    (folder / "prop.vnnlib").write_text("".join([*text, f"(assert {unsafe})"]))
    config = load_config("auto", SETTINGS[setting])
    try:
        files = folder / "net.onnx", folder / "prop.vnnlib"
        return verifier.verify(*files, config=config, threads=1, timeout=300, device="cpu").verdict
    except InputError:
        return None


# -- where there is no value -------------------------------------------------------------------------------------------

SQUARE: Sequence[Node] = [("Mul", ["x", "x"], "s"), ("Sub", ["s", "c"], "t")]
"""x^2 - c: below 0 in the middle of a box around 0 only, where no corner is."""

NOWHERE: dict[str, onnx.ModelProto] = {
    "a gate of a reciprocal": chain("Reciprocal", "Sigmoid"),
    "a wave of a reciprocal": chain("Reciprocal", "Sin"),
    "a sign of a reciprocal": chain("Reciprocal", "Sign"),
    "a gate of a quotient": network([("Div", ["x", "x"], "q"), ("Tanh", ["q"], "y")]),
    "a gate of a root": network([*SQUARE, ("Sqrt", ["t"], "r"), ("Sigmoid", ["r"], "y")], c=1e-9),
    "a clipped root": network([*SQUARE, ("Sqrt", ["t"], "r"), ("Clip", ["r", "zero", "c"], "y")], c=1e-9, zero=0.0),
    "a gate of a logarithm": network([*SQUARE, ("Log", ["t"], "r"), ("Erf", ["r"], "y")], c=1e-9),
    "a gate of a power": network([*SQUARE, ("Pow", ["t", "e"], "r"), ("Atan", ["r"], "y")], c=1e-9, e=-1.5),
    "zero times a logarithm": network(
        [*SQUARE, ("Log", ["t"], "r"), ("Mul", ["r", "zero"], "z"), ("Add", ["z", "x"], "y")], c=1e-9, zero=0.0
    ),
    "a difference of equal logarithms": network(
        [*SQUARE, ("Log", ["t"], "r"), ("Sub", ["r", "r"], "z"), ("Add", ["z", "x"], "y")], c=1e-9
    ),
    "zero times a root beside a head": network(
        [*SQUARE, ("Sqrt", ["t"], "r"), ("Mul", ["r", "zero"], "z"), ("Add", ["z", "x"], "h"), ("Sigmoid", ["h"], "y")],
        c=1e-9,
        zero=0.0,
    ),
}


@pytest.mark.parametrize("setting", ["boxes", "points"])
@pytest.mark.parametrize("name", NOWHERE)
def test_what_has_no_value_somewhere_is_not_proved(tmp_path: Path, name: str, setting: str) -> None:
    """No output is as large; but the functions behind are bounded, and would hide that there may be none."""
    unsafe = "(>= Y_0 0.9)" if name.endswith("head") else "(>= Y_0 9)"
    assert verdict(tmp_path, NOWHERE[name], [(-1.0, 1.0)], unsafe, setting) is not Verdict.UNSAT


@pytest.mark.parametrize("name", NOWHERE)
def test_elsewhere_it_is_proved(tmp_path: Path, name: str) -> None:
    unsafe = "(>= Y_0 0.9)" if name.endswith("head") else "(>= Y_0 9)"
    assert verdict(tmp_path, NOWHERE[name], [(0.5, 1.0)], unsafe, "race") is Verdict.UNSAT


# -- values that are taken ---------------------------------------------------------------------------------------------

TWO, THREE = [(-1000.0, 1000.0)] * 2, [(-1000.0, 1000.0)] * 3
TAKEN: dict[str, tuple[Any, Sequence[Box], str]] = {
    "Floor at a jump": (chain("Floor"), [(1.0, 2.0)], "(>= Y_0 2)"),
    "Floor far away": (chain("Floor"), [(1e8, 1e8 + 64)], "(>= Y_0 100000064)"),
    "Ceil at a jump": (chain("Ceil"), [(1.0, 2.0)], "(<= Y_0 1)"),
    "Round down to even": (chain("Round"), [(0.5, 0.75)], "(<= Y_0 0)"),
    "Round up to even": (chain("Round"), [(1.25, 1.5)], "(>= Y_0 2)"),
    "Sign at zero": (chain("Sign"), [(0.0, 1.0)], "(<= Y_0 0)"),
    "Sign of zero only": (chain("Sign"), [(-1.0, 1.0)], "(and (<= Y_0 0.5) (>= Y_0 -0.5))"),
    "Sin over a period": (chain("Sin"), [(1e8, 1e8 + 8)], "(>= Y_0 0.999999)"),
    "Cos where pieces end": (chain("Cos"), [(2.0**20 - 4, 2.0**20 + 4)], "(<= Y_0 -0.999999)"),
    "the middle of Sigmoid": (chain("Sigmoid"), [(0.0, 1.0)], "(<= Y_0 0.5)"),
    "the tail of Sigmoid": (chain("Sigmoid"), [(-100.0, 0.0)], "(<= Y_0 1e-30)"),
    "the middle of Tanh": (chain("Tanh"), [(-1.0, 0.0)], "(>= Y_0 0)"),
    "Softmax of large numbers": (network([("Softmax", ["x"], "y")], 3, 3), THREE, "(>= Y_0 0.99999)"),
    "Softmax, compared": (network([("Softmax", ["x"], "y")], 3, 3), THREE, "(<= Y_0 Y_1)"),
    "LogSoftmax of large numbers": (network([("LogSoftmax", ["x"], "y")], 2, 2), TWO, "(<= Y_0 -1999)"),
    "a square by another name": (
        network([("Identity", ["x"], "z"), ("Mul", ["x", "z"], "y")]),
        [(-1.0, 1.0)],
        "(<= Y_0 0)",
    ),
    "minus a square": (network([("Neg", ["x"], "z"), ("Mul", ["x", "z"], "y")]), [(-1.0, 2.0)], "(<= Y_0 -4)"),
    "a cube": (network([("Pow", ["x", "e"], "y")], e=3.0), [(-2.0, 1.0)], "(<= Y_0 -8)"),
    "an inverse cube": (network([("Pow", ["x", "e"], "y")], e=-3.0), [(-2.0, -0.5)], "(<= Y_0 -8)"),
    "a power that is one": (network([("Pow", ["x", "e"], "y")], e=0.0), [(-2.0, 2.0)], "(>= Y_0 1)"),
    "a root at zero": (chain("Sqrt"), [(0.0, 4.0)], "(<= Y_0 0)"),
    "a third": (network([("Div", ["x", "c"], "y")], c=3.0), [(0.0, 3.0)], "(>= Y_0 1)"),
    "Exp at its end": (chain("Exp"), [(-1000.0, 0.0)], "(>= Y_0 1)"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_values_that_are_taken_are_not_excluded(tmp_path: Path, name: str) -> None:
    made, box, unsafe = TAKEN[name]
    assert verdict(tmp_path, made, box, unsafe, "boxes") in (Verdict.SAT, Verdict.UNKNOWN)


BEYOND: dict[str, tuple[Any, Sequence[Box], str]] = {
    "Floor below a jump": (chain("Floor"), [(1.0, 1.9999)], "(>= Y_0 2)"),
    "Softmax, compared": (
        network([("Softmax", ["x"], "y")], 3, 3),
        [(0.0, 1.0), (-2.0, -1.0), (-3.0, -2.0)],
        "(<= Y_0 Y_1)",
    ),
    "Sigmoid above its values": (chain("Sigmoid"), [(-100.0, 100.0)], "(>= Y_0 1.001)"),
    "Sin beyond its values": (chain("Sin"), [(-1e30, 1e30)], "(>= Y_0 1.001)"),
    "Exp that overflows in a gate": (chain("Exp", "Sigmoid"), [(-1000.0, 1000.0)], "(>= Y_0 1.001)"),
    "a square is not negative": (network([("Mul", ["x", "x"], "y")]), [(-1.0, 1.0)], "(<= Y_0 -0.001)"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_values_that_are_not_taken_are_excluded(tmp_path: Path, name: str) -> None:
    made, box, unsafe = BEYOND[name]
    assert verdict(tmp_path, made, box, unsafe, "race") is Verdict.UNSAT


@pytest.mark.parametrize(("kind", "unsafe"), [("Sigmoid", "(>= Y_0 1)"), ("Tanh", "(<= Y_0 -1)")])
def test_ends_that_only_floats_reach_are_no_proof(tmp_path: Path, kind: str, unsafe: str) -> None:
    """In real numbers no value is as small or as large; onnxruntime finds one, and the property keeps its head."""
    assert verdict(tmp_path, chain(kind), [(-100.0, 100.0)], unsafe, "race") is Verdict.SAT
