"""Proofs that a run writes are accepted by the independent checker, whatever closed the domains."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from falsify import instances

from verifier.bounding.core.base import Region
from verifier.bounding.hidden import Known, RootBounds
from verifier.checker.check import check
from verifier.config import load_config
from verifier.errors import InputError
from verifier.functions.gaussian import Erf
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.network.network import Network
from verifier.pipeline import Request, decide
from verifier.processes import forkable
from verifier.proofs.ledger import Incomplete, Ledger
from verifier.proofs.log import Born, Dropped, Said
from verifier.proofs.recording import Recording
from verifier.result.result import Result
from verifier.result.verdict import Verdict
from verifier.search.signs.space import Policy


def run(root: Path, names: tuple[str, str], proof: Path, preset: str = "auto", threads: int = 1) -> Result:
    net, prop = (
        root / "properties" / kind / f"{name}.{kind}" for kind, name in zip(("onnx", "vnnlib"), names, strict=True)
    )
    request = Request(
        GivenFiles(str(net), str(prop)), load_config(preset, ()), Machine("cpu", threads, 60.0), proof=str(proof)
    )
    return decide(request, request.status())


def judged(root: Path, names: tuple[str, str], proof: Path) -> str:
    net, prop = (
        root / "properties" / kind / f"{name}.{kind}" for kind, name in zip(("onnx", "vnnlib"), names, strict=True)
    )
    return check(str(net), str(prop), str(proof)).verdict


CASES = {
    "root": ("digits_fc", "fc_crown_1439"),
    "intervals": ("digits_fc", "fc_interval_1437"),
    "signs": ("digits_fc", "fc_branch_1438"),
    "several boxes": ("digits_fc", "fc_boxes_1447"),
    "several rows": ("digits_fc", "fc_joint_1440"),
    "boxes": ("toy", "toy_positive"),
    "boxes, clipped": ("pendulum_lyapunov", "pendulum_decrease"),
    "boxes, several clauses": ("cart_controller", "cart_cases"),
}
LONG = {"residual": ("digits_res", "res_branch_1441"), "maps that cancel": ("digits_pool", "pool_branch_1438")}


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in LONG)])
def test_proofs_are_accepted(root: Path, tmp_path: Path, case: str) -> None:
    proof, names = tmp_path / "proof", (CASES | LONG)[case]
    result = run(root, names, proof)
    assert result.verdict is Verdict.UNSAT
    assert judged(root, names, proof) == "accepted"
    assert result.proof is not None
    assert result.as_dict()["proof"]["bytes"] == proof.stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["proof"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["no_cuts", "paper/big_m", "paper/active_set_100"])
def test_proofs_of_other_tiers_are_accepted(root: Path, tmp_path: Path, preset: str) -> None:
    names = ("digits_fc", "fc_branch_1442")
    assert run(root, names, tmp_path / "proof", preset).verdict is Verdict.UNSAT
    assert judged(root, names, tmp_path / "proof") == "accepted"


@pytest.mark.slow
@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_proofs_of_several_processes_are_accepted(root: Path, tmp_path: Path) -> None:
    names = ("cart_controller", "cart_deviation")
    assert run(root, names, tmp_path / "proof", threads=3).verdict is Verdict.UNSAT
    assert judged(root, names, tmp_path / "proof") == "accepted"


def test_other_verdicts_leave_no_file(root: Path, tmp_path: Path) -> None:
    result = run(root, ("toy", "toy_peak"), tmp_path / "proof")
    assert (result.verdict, result.proof, list(tmp_path.iterdir())) == (Verdict.SAT, None, [])


def test_what_cannot_be_written_is_said_before_the_search(root: Path, tmp_path: Path) -> None:
    known = Known(Region(torch.zeros(1, 2), torch.ones(1, 2)))
    with pytest.raises(InputError, match=r"bounding\.intermediate"):
        Recording(str(tmp_path / "proof"), known, Policy())
    first = replace(instances.layer("first", 0, [[1.0]], [0.0]), function=Erf())
    smooth = Network((1,), (first,), instances.layer("out", 1, [[1.0]], [0.0]))
    recording = Recording(str(tmp_path / "proof"), RootBounds(), Policy())
    problem = instances.problem(smooth, instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, -1)])])
    with pytest.raises(InputError, match="the function Erf"):
        recording.begin(problem)


WAITS = """
import sys, time
from verifier.cli.main import run
from verifier.proofs.writer import ProofWriter

usual = ProofWriter._stream

def waits(self, write):
    usual(self, write)  # all of it is in the archive, but for its end
    print("written", flush=True)
    time.sleep(60)

ProofWriter._stream = waits
run(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a hidden file may be left")
def test_a_run_that_is_killed_while_it_writes_leaves_no_file(root: Path, tmp_path: Path) -> None:
    files = [str(root / "properties" / name) for name in ("onnx/toy.onnx", "vnnlib/toy_positive.vnnlib")]
    argv = [sys.executable, "-c", WAITS, *files, "--proof", str(tmp_path / "proof"), "--threads", "1"]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said, before = process.stdout.readline(), list(tmp_path.iterdir())
        process.kill()
    assert (said, process.returncode) == ("written\n", -signal.SIGKILL)
    assert (before, list(tmp_path.iterdir())) == ([], [])


def test_what_could_not_be_written_is_said_in_the_result(root: Path, tmp_path: Path) -> None:
    result = run(root, ("toy", "toy_positive"), tmp_path / "no such folder" / "proof")
    assert (result.verdict, result.proof) == (Verdict.UNSAT, None)
    assert result.message is not None
    assert result.message.startswith("no proof was written: ")
    assert "no such folder" in result.message


# ---------------------------------------------------------------- what covers what


def split_once() -> Ledger:
    ledger = Ledger()
    ledger.keep([Born(0, -1, 0, ()), Born(1, 0, 0, ((1, 4, 1),)), Born(2, 0, 0, ((1, 4, -1),))])
    ledger.keep([Said(1, [b"one"], last=True)])
    return ledger


def test_children_stand_in_the_order_of_their_signs() -> None:
    ledger = split_once()
    ledger.keep([Said(2, [b"two"], last=True)])
    assert ledger.subtrees([0], [0]) == [([0], 0)]
    written = [p for pieces in ledger.by_signs(0, 0, 1) for p in pieces if isinstance(p, bytes)]
    assert b"".join(written) == b"\1\1\4onetwo"


def test_an_open_domain_is_a_hole() -> None:
    with pytest.raises(Incomplete):
        split_once().subtrees([0], [0])


def test_what_was_dropped_covers_nothing() -> None:
    """The clause began anew: the old tree stays incomplete, and the new one is taken."""
    ledger = split_once()
    ledger.keep([Dropped((2,)), Born(3, -1, 0, ()), Said(3, [b"anew"], last=True)])
    assert ledger.subtrees([0], [0]) == [([0], 3)]


def test_boxes_are_cut_as_they_were_halved() -> None:
    ledger = Ledger()
    ends = {1: ((0, 0, -1, 0.5),), 2: ((0, 0, 1, 0.5), (0, 1, -1, 0.25)), 3: ((0, 0, 1, 0.5), (0, 1, 1, 0.25))}
    ledger.keep([Born(0, -1, 0, (), True), *(Born(k, 0, 0, places, True) for k, places in ends.items())])
    ledger.keep([Said(k, [b"%d" % k], last=True) for k in ends])
    written = [p for pieces in ledger.by_boxes(0, [], 1) for p in pieces if isinstance(p, bytes)]
    assert [p[0] for p in written] == [2, ord("1"), 2, ord("2"), ord("3")]
