"""What a run that ends in a verdict writes, and where."""

from __future__ import annotations

import gzip
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from rounding import identity

KEYS = (
    "verdict reason network property network_sha256 property_sha256 timeout time lower_bound counterexample "
    "statistics config seed device threads versions"
).split()


def values(witness: str) -> dict[str, float]:
    """Reads a witness of version 1.0 strictly: one s-expression of (name number) pairs."""
    inner = re.fullmatch(r"\((\(\S+ \S+\)(?:\s+\(\S+ \S+\))*)\)\s*", witness)
    assert inner is not None, witness
    return {name: float(number) for name, number in re.findall(r"\((\S+) (\S+?)\)", inner[1])}


LIMITED = ("--config", "no_cuts", "--set", "search.max_domains=1", "--set", "search.splitting=relus")


def test_unsat(verify: Any, tiny: Any) -> None:
    outcome = verify(tiny.net, tiny.unsat)
    assert (outcome.code, outcome.out, outcome.err) == (0, "unsat\n", "")


def test_sat_prints_a_witness_that_onnxruntime_confirms(verify: Any, tiny: Any) -> None:
    outcome = verify(tiny.net, tiny.sat)
    assert (outcome.code, outcome.err) == (1, "")
    first, witness = outcome.out.split("\n", 1)
    assert first == "sat"
    found = values(witness)
    assert list(found) == ["X_0", "X_1", "Y_0"]
    x = np.array([[found["X_0"], found["X_1"]]])
    assert (x == x.astype(np.float32)).all()
    assert (abs(x) <= 1).all()
    session = onnxruntime.InferenceSession(tiny.net, providers=["CPUExecutionProvider"])
    y = session.run(None, {"X": x.astype(np.float32)})[0]
    assert float(y[0, 0]) == found["Y_0"] <= -0.75


def test_a_run_that_rounds_across_the_border_is_mentioned_beside_a_proof(verify: Any, tiny: Any) -> None:
    """y = x_0 in real arithmetic; float32 computes (x_0 + 2) - 2, which is smaller."""
    prop = tiny.folder / "rounds.vnnlib"
    names = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
    point = "".join(f"(assert (>= X_{i} {v}))(assert (<= X_{i} {v}))" for i, v in enumerate(("0.1", "0.0")))
    prop.write_text(f"{names}{point}(assert (<= Y_0 0.09999995))")
    found = tiny.folder / "rounds.json"
    outcome = verify(tiny.net, str(prop), "--threads", "1", "--json", str(found))
    assert (outcome.code, outcome.out) == (0, "unsat\n")
    assert "violates the property by rounding" in outcome.err
    data = json.loads(found.read_text())
    assert data["arithmetic"] == "real"
    assert data["rounding_witness"]["y"][0] <= 0.09999995


def test_unknown(verify: Any, tiny: Any) -> None:
    outcome = verify(tiny.net, tiny.unknown, *LIMITED)
    assert (outcome.code, outcome.out) == (3, "unknown\n")
    assert outcome.err.startswith("undecided: the limit of domains was reached\n")
    assert "  the only clause stayed open at the root; the worst, number 0, had the bound\n    -0.5;" in outcome.err
    assert outcome.err.endswith("  try: a larger search.max_domains\n")
    assert all(len(line) < 80 for line in outcome.err.splitlines())
    assert verify(tiny.net, tiny.unknown, *LIMITED, "-q").err == ""


def test_branching_decides_what_the_root_leaves_open(verify: Any, tiny: Any) -> None:
    outcome = verify(tiny.net, tiny.unknown)
    assert (outcome.code, outcome.out, outcome.err) == (0, "unsat\n", "")


def test_quiet_prints_the_word_only(verify: Any, tiny: Any) -> None:
    assert verify(tiny.net, tiny.sat, "-q").out == "sat\n"


def test_verbose_says_more_on_stderr_and_nothing_more_on_stdout(verify: Any, tiny: Any) -> None:
    outcome = verify("-v", tiny.net, tiny.unknown, *LIMITED)
    assert outcome.out == "unknown\n"
    told = [line for line in outcome.err.splitlines() if line.startswith(("info: ", "debug: "))]
    assert [line.split()[1] for line in told] == ["load:", "problem:", "root:", "search:"]
    more = verify("-vv", tiny.net, tiny.unknown, *LIMITED)
    assert more.out == "unknown\n"
    assert any(line.startswith("debug: ") and "| search |" in line for line in more.err.splitlines())


@pytest.mark.parametrize(("name", "code"), [("sat", 1), ("unsat", 0), ("unknown", 3)])
def test_json_replaces_the_answer_on_stdout(verify: Any, tiny: Any, name: str, code: int) -> None:
    prop = getattr(tiny, name)
    outcome = verify(
        tiny.net, prop, "--json", "-", "--timeout", "100", "--seed", "3", "--set", "falsify.steps=9", *LIMITED
    )
    assert outcome.code == code
    assert outcome.err.partition(":")[0] == ("undecided" if name == "unknown" else "")
    data = json.loads(outcome.out)
    assert (data["undecided"] is not None) == (name == "unknown")
    assert set(KEYS) <= set(data)
    assert data["verdict"] == name
    assert data["reason"] == ("limit" if name == "unknown" else None)
    assert (data["network"], data["property"]) == (tiny.net, prop)
    assert re.fullmatch("[0-9a-f]{64}", data["network_sha256"])
    assert re.fullmatch("[0-9a-f]{64}", data["property_sha256"])
    assert (data["timeout"], data["seed"], data["config"]["falsify"]["steps"]) == (100.0, 3, 9)
    assert data["device"] == "cpu" or data["device"].startswith("cuda")
    assert data["threads"] >= 1
    assert (data["counterexample"] is not None) == (name == "sat")
    assert data["time"]["total"] >= data["time"]["load"] > 0
    if name == "unsat":
        assert 0 < data["lower_bound"] <= 3.0  # the true minimum of y - c is -1 + 4
    if name == "unknown":
        assert data["lower_bound"] <= 0


def test_files_hold_the_same_answer(verify: Any, tiny: Any, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("r.txt", "c.txt", "j.json")]
    outcome = verify(tiny.net, tiny.sat, "--result", paths[0], "--counterexample", paths[1], "--json", paths[2], "-q")
    result, witness, data = (Path(p).read_text() for p in paths)
    assert outcome.out == "sat\n"
    assert result == f"sat\n{witness}"
    found = values(witness)
    assert json.loads(data)["counterexample"] == {"x": [found["X_0"], found["X_1"]], "y": [found["Y_0"]]}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.txt", "j.json", "r.txt"]


def test_a_holding_property_writes_no_counterexample(verify: Any, tiny: Any, tmp_path: Path) -> None:
    verify(tiny.net, tiny.unsat, "--result", tmp_path / "r", "--counterexample", tmp_path / "c")
    assert (tmp_path / "r").read_text() == "unsat\n"
    assert not (tmp_path / "c").exists()


def test_a_device_is_written_to_and_not_replaced(verify: Any, tiny: Any) -> None:
    verify(tiny.net, tiny.unsat, "--result", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_compressed_files(verify: Any, tiny: Any, tmp_path: Path) -> None:
    for name in (tiny.net, tiny.unsat):
        (tmp_path / (Path(name).name + ".gz")).write_bytes(gzip.compress(Path(name).read_bytes()))
    assert verify(tmp_path / "net.onnx.gz", tmp_path / "unsat.vnnlib.gz").out == "unsat\n"


def test_options_may_stand_anywhere(verify: Any, tiny: Any) -> None:
    assert verify("--timeout", "100", tiny.net, "-q", tiny.unsat, "--seed=1").code == 0


QUERY = """(vnnlib-version <2.0>)
(declare-network f
  (declare-input X float32 [1,2])
  (declare-output Y float32 [1,1]))
(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] -1.0) (<= X[0,1] 1.0)))
(assert (<= Y[0,0] -0.75))
"""


def test_the_form_of_the_second_standard(verify: Any, tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "q.vnnlib").write_text(QUERY)
    outcome = verify(tmp_path / "q.vnnlib", "--network", f"f={tiny.net}", "--timeout", "100")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert (lines[0], lines[1], lines[4], len(lines)) == ("sat", "X float32 [1,2]", "Y float32 [1,1]", 6)
    assert float(lines[5]) <= -0.75


def test_attack(verify: Any, tiny: Any) -> None:
    found = verify("attack", tiny.net, tiny.sat)
    assert (found.code, found.out.split("\n")[0]) == (1, "sat")
    none = verify("attack", tiny.net, tiny.unsat)
    assert (none.code, none.out) == (3, "unknown\n")


def test_an_empty_box_holds_with_a_warning(verify: Any, tiny: Any, tmp_path: Path) -> None:
    text = Path(tiny.sat).read_text().replace("(>= X_0 -1.0)", "(>= X_0 1.5)")
    (tmp_path / "empty.vnnlib").write_text(text)
    outcome = verify(tiny.net, tmp_path / "empty.vnnlib")
    assert (outcome.code, outcome.out) == (0, "unsat\n")
    assert outcome.err.startswith("warning: ")
    assert verify(tiny.net, tmp_path / "empty.vnnlib", "-q").err == ""


def test_the_falsifier_can_be_switched_off(verify: Any, tiny: Any) -> None:
    outcome = verify(tiny.net, tiny.sat, "--set", "falsify.enabled=false", "--json", "-")
    data = json.loads(outcome.out)
    assert data["verdict"] == "sat"  # the search finds the witness instead
    assert data["time"]["search"] > 0


def test_the_same_seed_gives_the_same_witness(verify: Any, tiny: Any) -> None:
    first, second = (verify(tiny.net, tiny.sat, "--seed", "5").out for _ in range(2))
    assert first == second


def test_where_rounding_differs_from_a_proof_the_user_hears_of_it(verify: Any, tmp_path: Path) -> None:
    case = identity(np.float32, ("0.1", "0.1"))
    net, prop = case.write(tmp_path, Fraction("-0.1000000001"))
    outcome = verify(net, prop, "--threads", 1)
    assert (outcome.code, outcome.out) == (0, "unsat\n")
    assert outcome.err.count("\n") == 1
    assert "by rounding at a float next to the box" in outcome.err
    assert verify(net, prop, "--threads", 1, "-q").err == ""


def test_a_witness_that_only_the_run_confirms_is_said_to_be_one(verify: Any, tmp_path: Path) -> None:
    case = identity(np.float32, ("0.1", "0.1"))
    net, prop = case.write(tmp_path, -Fraction("0.1") - Fraction(1, 10**30))
    for command in ((), ("attack",)):
        outcome = verify(*command, net, prop)
        assert outcome.code == 1
        assert outcome.out.startswith("sat\n((X_0 ")
        assert "real arithmetic does not confirm it" in outcome.err
