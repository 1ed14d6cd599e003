"""Monotonicity and irrelevant inputs: files that the reader takes, and verdicts that are known by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from property.joints import saved

import verifier
from verifier.cli.main import run
from verifier.errors import InputError
from verifier.property.templates import Irrelevant, Monotone, Pair, Template
from verifier.property.vnnlib import parse

# y_0 = relu(x_0 + 0.25 x_1) and y_1 = -x_0 - relu(x_2): hidden neurons relu(x_0 + x_1 / 4), relu(x_2), relu(x_0 + 4).
HIDDEN = np.array([[1.0, 0.25, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), np.array([0.0, 0.0, 4.0])
OUTPUT = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, -1.0]]), np.array([0.0, 4.0])
LOW, HIGH = np.array([-1.0, -1.0, -1.0]), np.array([1.0, 1.0, 1.0])
PAIR = Pair((1, 3), (1, 2), LOW, HIGH)


def verdict(tmp_path: Path, template: Template) -> str:
    net = saved(tmp_path / "net.onnx", [HIDDEN, OUTPUT])
    prop = tmp_path / "prop.vnnlib"
    prop.write_text(template.vnnlib())
    result = verifier.verify(net, prop, threads=1)
    if result.counterexample is not None:
        x, _ = result.counterexample.declared
        moving = [template.entry] if isinstance(template, Monotone) else list(template.entries)  # type: ignore[attr-defined]
        assert np.delete(x[:3], moving).tolist() == np.delete(x[3:], moving).tolist()
    return result.verdict.value


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        # y_0 never falls with x_0, but is flat where its neuron blocks; it is steep enough for no step.
        (Monotone(PAIR, 0, 0, margin="0.01"), "unsat"),
        (Monotone(PAIR, 0, 0, step="0.5"), "sat"),
        (Monotone(PAIR, 0, 1, step="0.5", decreasing=True), "unsat"),
        (Monotone(PAIR, 0, 1, step="0.5"), "sat"),
        (Monotone(PAIR, 2, 1, margin="0.5"), "sat"),
        (Monotone(PAIR, 2, 1, margin="0.5", decreasing=True), "unsat"),
        # x_1 moves y_0 by up to 0.5, and x_2 moves y_1 by up to 1.
        (Irrelevant(PAIR, (1,), tolerance="0.51"), "unsat"),
        (Irrelevant(PAIR, (1,), tolerance="0.49"), "sat"),
        (Irrelevant(PAIR, (2,), tolerance="1.01"), "unsat"),
        (Irrelevant(PAIR, (1, 2), tolerance="0.99"), "sat"),
        # At x_0 = 0, x_2 = 0: y = (relu(x_1 / 4), 0): class 0 by up to 0.25, and class 1 by up to 1 elsewhere.
        (Irrelevant(PAIR, (2,), margin="0.1"), "sat"),
        (Irrelevant(PAIR, (1,), margin="0.3"), "unsat"),
    ],
)
def test_verdicts_by_hand(tmp_path: Path, template: Template, expected: str) -> None:
    assert verdict(tmp_path, template) == expected


def test_texts_are_read_again() -> None:
    prop = parse(Irrelevant(Pair((1, 2, 2), (3,), np.zeros(4), np.ones(4)), (1, 3), margin="1/3").vnnlib())
    assert prop.joint is not None
    assert [network.name for network in prop.joint.networks] == ["f", "g"]
    assert prop.n_x == 6  # two entries of both copies, and two that they share
    assert len(prop.clauses) == 3
    assert all(len(clause.rows) == 4 for clause in prop.clauses)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (Monotone(PAIR, 3, 0, step=1), "input 3 does not exist: the network has 3, counted from 0"),
        (Monotone(PAIR, 0, 2, step=1), "output 2 does not exist: the network has 2, counted from 0"),
        (Monotone(PAIR, 0, 0), "one of them must be positive"),
        (Monotone(PAIR, 0, 0, step="x"), "step is 'x', which is not a finite number"),
        (Irrelevant(PAIR, ()), "no input is named that must not matter"),
        (Irrelevant(PAIR, (0,)), "give either a tolerance of the outputs or a margin of the class"),
        (Irrelevant(PAIR, (0,), tolerance=0), "tolerance is 0, it must be positive"),
        (Irrelevant(Pair((3,), (1,), LOW, HIGH), (0,), margin=1), "a network with one output has no classes"),
    ],
)
def test_what_makes_no_sense_is_refused(template: Template, message: str) -> None:
    with pytest.raises(InputError, match=message):
        template.vnnlib()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = str(saved(tmp_path / "net.onnx", [HIDDEN, OUTPUT]))
    np.save(tmp_path / "l.npy", LOW)
    np.save(tmp_path / "u.npy", HIGH)
    box = ["--lower", str(tmp_path / "l.npy"), "--upper", str(tmp_path / "u.npy")]
    out = tmp_path / "p.vnnlib"
    assert run(["template", "monotone", net, *box, "--input", "0", "--margin", "0.01", "-o", str(out)]) == 0
    assert out.read_text() == Monotone(PAIR, 0, 0, margin="0.01").vnnlib()
    assert (
        run(["template", "irrelevant", net, *box, "--input", "1", "--input", "2", "--tolerance", "2", "-o", "-"]) == 0
    )
    assert capsys.readouterr().out == Irrelevant(PAIR, (1, 2), tolerance="2").vnnlib()
    np.save(tmp_path / "l.npy", LOW[:2])
    assert run(["template", "monotone", net, *box, "--input", "0", "--step", "1", "-o", str(out)]) == 2
    assert "lower has the shape (2,) and upper (3,)" in capsys.readouterr().err
    assert not out.exists()
