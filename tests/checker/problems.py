"""Tiny networks, right proofs about them, and whoever tries to prove what is false."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from checker.building import ALL, close, cut, default, members, section, split, values, weights, witness
from checker.forging import MISTAKES, Forger, Piece, Problem, Rng, in_pieces, made_false, put_together
from checker.kits import KIT, Kit
from onnx import TensorProto, helper, numpy_helper

from verifier.checker.vnnlib import Clause


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
        "bare": [("Relu", ["X"], {}), ("Gemm", ["0", "W", "b"], {}), ("Relu", ["1"], {})],
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
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


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
    data = model(rng, STYLES[seed % len(STYLES)])
    centre = rng.normal(size=6) * 0.3
    low, high = np.minimum(centre - 0.5, -0.1), np.maximum(centre + 0.5, 0.1)
    rows = [{("Y", j): Fraction(float(a)) for j, a in enumerate(rng.normal(size=2))} for _ in range(3)]
    far = [{**row, ("", 0): Fraction(1000)} for row in rows]
    problem = Problem(data, [Clause(low, high, tuple(far[:1]), 2), Clause(low, high, tuple(far[1:]), 2)])
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
        assert reason.startswith("Rejected: "), reason
        if nodes > reached and len(forged) > 1:
            best, reached = forged, nodes
    return tried, None


def attacked(problem: Problem, body: bytes, seed: int, steps: int, kit: Kit = KIT) -> tuple[Counter[str], bool]:
    """One clause after the other is made false, at the point that comes nearest to it.  Whether a proof got through."""
    rng = np.random.default_rng(seed)
    pieces, tried = in_pieces(problem, body), Counter[str]()
    for _ in range(max(steps // 50, 1)):
        false = made_false(replace(problem, kit=kit), int(rng.integers(len(problem.clauses))), rng)
        more, accepted = climbed(false, pieces, rng, min(steps, 50))
        tried += more
        if accepted is not None:
            return tried, True
    return tried, False
