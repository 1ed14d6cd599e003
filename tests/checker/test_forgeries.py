"""Forged proofs: where a point is unsafe nothing is accepted, however near the proof is to a right one."""

from __future__ import annotations

import functools
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from checker.building import write_proof
from checker.forging import Problem
from checker.problems import attacked, right
from onnx import numpy_helper

from verifier.checker.check import REJECTED, check
from verifier.checker.vnnlib import read_property
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.verdict import Verdict

# -- the laws ----------------------------------------------------------------------------------------------------------

SEEDS, EACH = 22, 100


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
    assert sum(total.values()) >= 2_000
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
        clauses = read_property(self.prop.read_text())
        with zipfile.ZipFile(self.proof) as archive:
            claims = archive.read("merged.bin") if "merged.bin" in archive.namelist() else None
            return Problem(self.net.read_bytes(), clauses, merged=claims), archive.read("proof.bin")


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
