"""Proofs by all integers: what they claim is what enumeration in rational numbers says, and doubt is no proof."""

from __future__ import annotations

import csv
import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from network.protos import proto
from onnx import TensorProto, helper

import verifier
from verifier.falsify import every_point
from verifier.falsify.every_point import proved_by_all_points
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.property.vnnlib import parse
from verifier.result.verdict import Reason, Verdict

make = helper.make_node
SIDE = 4
UNLIMITED = Machine().clock()


def patched(path: Path, seed: int, odd: str | None = None) -> OnnxModel:
    """An image of 4 x 4 with one pixel blackened where x16 and x17 say, two ReLU layers, and a choice of a class.

    y = (whether the largest of three logits is the one that x18 names) times a fourth output.
    """
    generator = np.random.default_rng(seed)
    n = SIDE * SIDE
    nodes = [
        make("Slice", ["x", "first", "image_end"], ["image"]),
        make("Gather", ["x", "row"], ["r"], axis=0),
        make("Cast", ["r"], ["ri"], to=TensorProto.INT64),
        make("Gather", ["x", "column"], ["c"], axis=0),
        make("Cast", ["c"], ["ci"], to=TensorProto.INT64),
        make("Concat", ["ri", "ci"], ["place"], axis=0),
        make("Reshape", ["place", "pair"], ["index"]),
        make("ScatterND", ["ones", "index", "zero"], ["mask2"]),
        make("Reshape", ["mask2", "flat"], ["mask"]),
        make("Mul", ["image", "mask"], ["seen"]),
        make("Reshape", ["seen", "line"], ["row_of_pixels"]),
        make("Gemm", ["row_of_pixels", "w1", "b1"], ["h1"]),
        make("Relu", ["h1"], ["r1"]),
        make("Gemm", ["r1", "w2", "b2"], ["out"]),
        make("Slice", ["out", "first", "three", "one"], ["logits"]),
        make("ArgMax", ["logits"], ["class"], axis=1, keepdims=0),
        make("Cast", ["class"], ["named"], to=TensorProto.FLOAT),
        make("Gather", ["x", "label"], ["wanted"], axis=0),
        make("Equal", ["named", "wanted"], ["same"]),
        make("Cast", ["same"], ["factor"], to=TensorProto.FLOAT),
        make("Gather", ["out", "fourth"], ["value"], axis=1),
        make("Reshape", ["value", "single"], ["value1"]),
        make("Mul", ["factor", "value1"], ["y"]),
    ]
    if odd == "rounded":
        nodes[8:9] = [
            make("Reshape", ["mask2", "flat"], ["mask0"]),
            make("Cast", ["ri"], ["rf"], to=TensorProto.FLOAT),
            make("Add", ["mask0", "rf"], ["mask"]),
        ]
    constants = {
        "first": np.array([0]),
        "image_end": np.array([n]),
        "three": np.array([3]),
        "one": np.array([1]),
        "row": np.array([n]),
        "column": np.array([n + 1]),
        "label": np.array([n + 2]),
        "pair": np.array([1, 2]),
        "flat": np.array([n]),
        "line": np.array([1, n]),
        "fourth": np.array([3]),
        "single": np.array([1]),
        "ones": np.ones((SIDE, SIDE), np.float32),
        "zero": np.zeros(1, np.float32),
        "w1": (generator.integers(-8, 9, (n, 6)) / 8).astype(np.float32),
        "b1": (generator.integers(-8, 9, 6) / 8).astype(np.float32),
        "w2": (generator.integers(-8, 9, (6, 4)) / 8).astype(np.float32),
        "b2": (generator.integers(-8, 9, 4) / 8).astype(np.float32),
    }
    path.write_bytes(proto(nodes, [n + 3], constants, opset=13).SerializeToString())
    return load_onnx(path)


def exact(model: OnnxModel, image: list[Fraction], place: tuple[int, int], label: int) -> Fraction:
    """y without any rounding."""
    held = {
        t.name: np.frombuffer(t.raw_data, np.float32).reshape(t.dims)
        for t in model.proto.graph.initializer
        if t.data_type == 1
    }
    pixels = [v * (i != place[0] * SIDE + place[1]) for i, v in enumerate(image)]
    hidden = [max(Fraction(0), _dot(held["w1"][:, j], pixels) + Fraction(float(held["b1"][j]))) for j in range(6)]
    out = [_dot(held["w2"][:, j], hidden) + Fraction(float(held["b2"][j])) for j in range(4)]
    return out[3] if out.index(max(out[:3])) == label else Fraction(0)


def _dot(weights: np.ndarray, values: list[Fraction]) -> Fraction:
    return sum((Fraction(float(w)) * v for w, v in zip(weights, values, strict=True)), Fraction(0))


def text(image: list[Fraction], label: int, condition: str, last: float = SIDE - 0.5) -> str:
    n = SIDE * SIDE
    lines = [f"(declare-const X_{i} Real)" for i in range(n + 3)] + ["(declare-const Y_0 Real)"]
    lines += [f"(assert (= X_{i} {float(v)!r}))" for i, v in enumerate(image)]
    lines += [f"(assert (<= 0 X_{n} {last}))", f"(assert (<= 0 X_{n + 1} {last}))", f"(assert (= X_{n + 2} {label}))"]
    return "\n".join([*lines, f"(assert {condition})"])


@pytest.mark.parametrize("seed", range(6))
def test_proofs_are_those_of_enumeration(tmp_path: Path, seed: int) -> None:
    """Thresholds on both sides of the exact minimum over all places, for the class that is chosen most often."""
    model = patched(tmp_path / "net.onnx", seed)
    assert model.integer_inputs.tolist() == [16, 17]
    generator = np.random.default_rng(seed)
    image = [Fraction(int(v), 8) for v in generator.integers(0, 9, 16)]
    places = list(itertools.product(range(SIDE), repeat=2))
    label = max(range(3), key=lambda k: sum(exact(model, image, place, k) != 0 for place in places))
    least = min(exact(model, image, place, label) for place in places)
    for offset, expected in ((Fraction(-1, 64), Verdict.UNSAT), (Fraction(1, 64), Verdict.SAT)):
        condition = f"(<= Y_0 {float(least + offset)!r})"
        prop = tmp_path / "p.vnnlib"
        prop.write_text(text(image, label, condition))
        result = verifier.verify(tmp_path / "net.onnx", prop, threads=1, timeout=60)
        assert result.verdict is expected
        found = proved_by_all_points(model, parse(prop.read_text()), UNLIMITED)
        assert (found is not None) == (expected is Verdict.UNSAT)


def test_an_image_that_moves_is_bounded_too(tmp_path: Path) -> None:
    model = patched(tmp_path / "net.onnx", 1)
    image = [Fraction(1, 2)] * 16
    head = text(image, 0, "(<= Y_0 -1000)")
    moving = head.replace("(assert (= X_3 0.5))", "(assert (<= 0.4999 X_3 0.5001))")
    assert moving != head
    assert proved_by_all_points(model, parse(moving), UNLIMITED) is not None


def test_a_choice_that_is_a_tie_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pixels zero and equal biases: every logit is the same number."""
    model = patched(tmp_path / "net.onnx", 0)
    for tensor in model.proto.graph.initializer:
        if tensor.name in {"w1", "b1", "w2", "b2"}:
            tensor.raw_data = np.ones(tensor.dims, np.float32).tobytes()
    path = tmp_path / "tie.onnx"
    path.write_bytes(model.proto.SerializeToString())
    assert proved_by_all_points(load_onnx(path), parse(text([Fraction(1)] * 16, 0, "(<= Y_0 -1)")), UNLIMITED) is None


def test_masks_of_rounded_numbers_are_refused(tmp_path: Path) -> None:
    model = patched(tmp_path / "net.onnx", 0, odd="rounded")
    prop = parse(text([Fraction(1)] * 16, 0, "(<= Y_0 -1000)"))
    assert model.integer_inputs.tolist() == [16, 17]
    assert proved_by_all_points(model, prop, UNLIMITED) is None


def test_conditions_on_integer_inputs_speak_of_real_numbers(tmp_path: Path) -> None:
    """Where the integer part is 3, the input may be 3.4: a condition that fails at 3 alone must not close it."""
    model = patched(tmp_path / "net.onnx", 0)
    image = [Fraction(1, 2)] * 16
    kept = text(image, 0, "(>= (+ X_16 (* 0.0 Y_0)) 3.25)")
    assert proved_by_all_points(model, parse(kept), UNLIMITED) is None
    gone = text(image, 0, "(>= (+ X_16 (* 0.001 Y_0)) 3.75)")
    assert proved_by_all_points(model, parse(gone), UNLIMITED) is not None


def test_a_proof_is_not_written(tmp_path: Path) -> None:
    from verifier.config import load_config
    from verifier.pipeline import Request, decide

    patched(tmp_path / "net.onnx", 0)
    (tmp_path / "p.vnnlib").write_text(text([Fraction(1, 2)] * 16, 0, "(<= Y_0 -1000)"))
    given = GivenFiles(str(tmp_path / "net.onnx"), str(tmp_path / "p.vnnlib"))
    request = Request(given, load_config("auto"), proof=str(tmp_path / "p.proof"))
    result = decide(request, request.status())
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.UNSUPPORTED)


def test_every_combination_is_in_one_block(tmp_path: Path) -> None:
    model = patched(tmp_path / "net.onnx", 0)
    prop = parse(text([Fraction(1)] * 16, 0, "(<= Y_0 0)", last=40.25))
    blocks = list(every_point._Box(model, prop, 0)._blocks())
    found = [tuple(row) for block in blocks for row in block.tolist()]
    assert sorted(found) == list(itertools.product(map(float, range(41)), repeat=2))
    assert max(len(block) for block in blocks) <= every_point.CHUNK


@pytest.mark.slow
def test_instances_of_the_competition(benchmarks: Path) -> None:
    """Two inputs move and are read as integers; the rest is fixed to decimals."""
    folder = benchmarks / "cctsdb_yolo"
    if not folder.is_dir():
        pytest.skip("the family cctsdb_yolo is not here")
    rows = list(csv.DictReader((folder / "expected.csv").read_text().splitlines()))
    for expected, count in (("unsat", 1), ("sat", 3)):
        for row in [row for row in rows if row["expected"] == expected][:count]:
            result = verifier.verify(folder / row["onnx"], folder / row["vnnlib"], threads=1, timeout=300)
            assert result.verdict.value == expected
