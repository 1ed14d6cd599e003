"""Runs that are killed and continued, from the files to the answer."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forks import alive

from verifier.checker.check import check
from verifier.cli.main import run as command
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.processes import forkable

pytestmark = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")

SLOW = ("search.batch=8", "search.fill=2", "search.sharpen.after=0.3", "falsify.enabled=false")
"""A search by signs that takes seconds, and moves to sharper bounds on its way."""

CUTTING = ("search.splitting=inputs", "falsify.enabled=false")


@dataclass(frozen=True)
class Instance:
    network: str
    property: str
    verdict: str
    options: tuple[str, ...]
    threads: int = 1
    proof: bool = False

    def files(self, root: Path) -> tuple[str, str]:
        return (
            str(root / f"properties/onnx/{self.network}.onnx"),
            str(root / f"properties/vnnlib/{self.property}.vnnlib"),
        )

    def request(self, root: Path, folder: Path) -> Request:
        proof = str(folder / "proof") if self.proof else None
        config = load_config("no_cuts", (*self.options, "search.checkpoint.seconds=0.01"))
        given, machine = GivenFiles(*self.files(root)), Machine("cpu", self.threads)
        return Request(given, config, machine, proof=proof, resume=str(folder))


def beside(work: Callable[[], object], report: Path) -> int:
    """A fork that does the work and writes what it returns; the number of the process."""
    child = os.fork()
    if child:
        return child
    try:
        import torch

        torch.set_num_threads(1)
        report.with_suffix(".part").write_text(json.dumps(work()))
        report.with_suffix(".part").rename(report)
    finally:
        os._exit(0)


def answer(request: Request) -> dict[str, Any]:
    result = decide(request, request.status())
    return {"verdict": result.verdict.value, "message": result.message, **result.as_dict()["statistics"]}


def killed_and_continued(request: Request, folder: Path, rng: random.Random, kills: int) -> tuple[dict[str, Any], int]:
    """The answer, and how many runs went on from a checkpoint.

    A run is killed at some moment, or a moment after it has written its first checkpoint.
    """
    continued, file = 0, folder / "checkpoint"
    for turn in range(kills + 1):
        report, before = folder / f"answer{turn}", _written(file)
        continued += before is not None
        child = beside(lambda: answer(request), report)
        end = time.monotonic() + (rng.uniform(0.05, 2.0) if rng.random() < 0.3 else 60.0)
        while turn < kills and alive(child) and time.monotonic() < end and _written(file) == before:
            time.sleep(0.001)
        if turn < kills:
            time.sleep(rng.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if report.exists():
            return json.loads(report.read_text()), continued
    raise AssertionError("the last run did not end")


def _written(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance",
    [
        Instance("digits_fc", "fc_branch_1438", "unsat", SLOW),
        Instance("digits_fc", "fc_branch_1438", "unsat", SLOW, 2),
        Instance("digits_fc", "fc_minimal_1441", "sat", SLOW),
        Instance("digits_fc", "fc_minimal_1441", "sat", SLOW, 2),
        Instance("pendulum_lyapunov", "pendulum_decrease", "unsat", CUTTING),
        Instance("pendulum_lyapunov", "pendulum_decrease", "unsat", ("falsify.enabled=false",), 2),
        Instance("cart_controller", "cart_deviation_far", "sat", ("falsify.enabled=false",)),
        Instance("digits_fc", "fc_branch_1438", "unsat", SLOW, proof=True),
        Instance("digits_fc", "fc_branch_1438", "unsat", SLOW, 2, proof=True),
        Instance("pendulum_lyapunov", "pendulum_decrease", "unsat", ("falsify.enabled=false",), 2, proof=True),
    ],
    ids=lambda instance: f"{instance.property}-{instance.threads}{'-proof' if instance.proof else ''}",
)
def test_runs_that_are_killed_at_any_moment_end_with_the_right_answer(
    instance: Instance, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verifier.search.pace.SHARE", float("inf"))  # every step is worth a checkpoint
    rng, continued = random.Random(f"{instance}"), 0
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        found, some = killed_and_continued(instance.request(root, folder), folder, rng, 7)
        assert found["verdict"] == instance.verdict, found["message"]
        assert found["earlier_runs"] <= some
        if instance.proof:
            assert check(*instance.files(root), str(folder / "proof")).verdict == "accepted", found["message"]
        continued += some
    assert instance.verdict == "sat" or continued > 3  # a witness may be found before the first checkpoint


def test_a_run_without_enough_time_is_continued_by_the_same_command(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance("digits_fc", "fc_branch_1438", "unsat", (*SLOW, "search.max_domains=20"))
    request = instance.request(root, tmp_path)
    first = answer(request)
    assert (first["verdict"], first["earlier_runs"]) == ("unknown", 0)
    assert (tmp_path / "checkpoint").exists()
    words = [str(root / "properties/onnx/digits_fc.onnx"), str(root / "properties/vnnlib/fc_branch_1438.vnnlib")]
    words += ["--config", "no_cuts", *(word for key in SLOW for word in ("--set", key))]
    assert command([*words, "--resume", str(tmp_path), "--threads", "1", "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "unsat"
    assert said["statistics"]["earlier_runs"] == 1
    assert said["statistics"]["earlier_seconds"] > 0
    assert said["statistics"]["domains"] >= first["domains"] - 8
    assert not (tmp_path / "checkpoint").exists()


def test_a_proof_that_could_not_be_written_can_still_be_written(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes stay as long as the proof is missing, and the next run needs only the rest of the search."""
    monkeypatch.setattr("verifier.search.pace.SHARE", float("inf"))  # every step is worth a checkpoint
    instance = Instance("digits_fc", "fc_branch_1438", "unsat", (*SLOW, "search.max_domains=20"), proof=True)
    assert answer(instance.request(root, tmp_path))["verdict"] == "unknown"
    files, proof = instance.files(root), tmp_path / "proof"
    words = [*files, "--config", "no_cuts", *(word for key in SLOW for word in ("--set", key)), "--proof", str(proof)]
    words += ["--resume", str(tmp_path), "--threads", "1", "--json", "-"]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("verifier.proofs.writer.ProofWriter.write", full)
        assert command(words) == 0
    assert json.loads(capsys.readouterr().out)["proof"] is None
    assert not proof.exists()
    assert (tmp_path / "checkpoint").exists()
    assert command(words) == 0
    assert json.loads(capsys.readouterr().out)["statistics"]["earlier_runs"] > 0
    assert check(*files, str(proof)).verdict == "accepted"
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "notes").exists()


def test_what_needs_the_whole_run_is_refused(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, prop = root / "properties/onnx/toy.onnx", root / "properties/vnnlib/toy_positive.vnnlib"
    assert command([str(net), str(prop), "--resume", str(tmp_path / "here"), "--trace", str(tmp_path / "t")]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    said = "--trace tells of one run from its beginning, so it does not go with --resume"
    assert found.err.strip() == f"error: {said}"


def test_checkpoints_of_another_instance_and_damaged_ones_end_with_exit_code_2(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance("digits_fc", "fc_branch_1438", "unsat", (*SLOW, "search.max_domains=20"))
    answer(instance.request(root, tmp_path))
    net, prop = str(root / "properties/onnx/digits_fc.onnx"), str(root / "properties/vnnlib/fc_branch_1438.vnnlib")
    common = ["--config", "no_cuts", *(word for key in SLOW for word in ("--set", key)), "--resume", str(tmp_path)]
    other = str(root / "properties/vnnlib/fc_branch_1442.vnnlib")
    assert command([net, other, *common]) == 2
    assert "is about another property" in capsys.readouterr().err
    assert command([net, prop, *common, "--set", "search.batch=16"]) == 2
    assert "search.batch was 8, now it is 16" in capsys.readouterr().err
    path = tmp_path / "checkpoint"
    raw = path.read_bytes()
    path.write_bytes(raw[:-7])
    assert command([net, prop, *common]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.strip() == f"error: {path}: the checkpoint is truncated or damaged; remove it to begin anew"
    assert path.read_bytes() == raw[:-7]
