"""Worker processes: what they answer, and what becomes of those that do not."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch.fakes import BROKEN, FAKE, instance, launch
from speed import ATTEMPTS

from verifier.batch.engine import LocalEngine, Observer
from verifier.batch.instances import Instance
from verifier.batch.jobs import Terms
from verifier.batch.process import Launch, Supervisor
from verifier.errors import VerifierError

TERMS = Terms()


class Witness(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def began(self, slot: int, instance: Instance) -> None:
        self.events.append(("began", slot))

    def ended(self, slot: int) -> None:
        self.events.append(("ended", slot))


def results(engine: LocalEngine, instances: Sequence[Instance]) -> dict[str, dict[str, Any]]:
    found = [(done.vnnlib, json.loads(reply.result)) for done, reply in engine.run(instances, TERMS, Observer())]
    assert sorted(name for name, _ in found) == sorted(i.vnnlib for i in instances)  # each exactly once
    return {name.removesuffix(".vnnlib"): data for name, data in found}


def test_each_ending_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    """One worker has to be replaced again and again; every other instance is decided by its successor."""
    names = ["unsat_1", "wrong", "bad", "unknown", "killed", "unsat_2", "aborted", "unsat_3"]
    found = results(LocalEngine(1, launch()), [instance(tmp_path, name) for name in names])
    assert [found[f"unsat_{k}"]["verdict"] for k in (1, 2, 3)] == ["unsat"] * 3
    assert {name: found[name]["verdict"] for name in names if "_" not in name} == {
        "wrong": "error",
        "bad": "error",
        "unknown": "unknown",
        "killed": "error",
        "aborted": "error",
    }
    assert found["wrong"]["reason"] == "internal error: ValueError: a mistake of ours"
    assert found["bad"]["reason"].endswith("bad.vnnlib: cannot be read")
    assert found["unknown"]["reason"] == "limit"
    assert found["killed"]["reason"] == "the worker process died (SIGKILL)"
    assert found["aborted"]["reason"] == "the worker process died (SIGABRT: terminate called: bad_alloc)"
    assert found["killed"]["network"].endswith("net.onnx")
    assert found["killed"]["config"] == json.loads(json.dumps(TERMS.config.resolved()))


@pytest.mark.parametrize(
    ("name", "bound", "longest"), [("patient", -2.5, 1.5), ("stuck", -2.5, 1.5), ("frozen", None, 4)]
)
def test_the_time_limit_holds(tmp_path: Path, name: str, bound: float | None, longest: float) -> None:
    """A run that does not look at its clock is ended by its own process, or else by the parent."""
    supervisor = Supervisor(launch())
    try:
        job = TERMS.job(instance(tmp_path, name, timeout=0.5))
        for _ in range(ATTEMPTS):  # other programs may hold up some
            reply = supervisor.solve(job)
            if reply.run_time < longest:
                break
        data = json.loads(reply.result)
        assert (data["verdict"], data["reason"], data["lower_bound"]) == ("timeout", "timeout", bound)
        assert 0.5 <= reply.run_time < longest
        assert (data["timeout"], data["property"]) == (0.5, str(tmp_path / f"{name}.vnnlib"))
        assert json.loads(supervisor.solve(TERMS.job(instance(tmp_path, "unsat"))).result)["verdict"] == "unsat"
    finally:
        supervisor.close()


def test_the_memory_limit_holds(tmp_path: Path) -> None:
    supervisor = Supervisor(launch(memory_bytes=200_000_000))
    try:
        data = json.loads(supervisor.solve(TERMS.job(instance(tmp_path, "hungry"))).result)
    finally:
        supervisor.close()
    assert (data["verdict"], data["reason"]) == ("unknown", "memory")
    assert "200 MB" in data["message"]


def test_a_warm_worker_is_used_again(tmp_path: Path) -> None:
    supervisor = Supervisor(launch())
    try:
        first, *others = (supervisor.solve(TERMS.job(instance(tmp_path, f"unsat_{k}"))) for k in range(ATTEMPTS))
    finally:
        supervisor.close()
    assert first.prepare_time > 2 * min(other.prepare_time for other in others)


def test_several_workers_share_the_instances(tmp_path: Path) -> None:
    observer = Witness()
    instances = [instance(tmp_path, f"slow_{k}") for k in range(6)]
    done = list(LocalEngine(3, launch()).run(instances, TERMS, observer))
    assert {found.vnnlib for found, _ in done} == {i.vnnlib for i in instances}
    assert {slot for _, slot in observer.events} == {0, 1, 2}
    assert sum(event == "began" for event, _ in observer.events) == 6


def test_a_batch_that_is_given_up_ends_its_workers(tmp_path: Path) -> None:
    instances = [instance(tmp_path, name) for name in ("unsat", "patient", "unsat_2")]
    running = LocalEngine(1, launch()).run(instances, TERMS, Observer())
    assert next(running)[0].vnnlib == "unsat.vnnlib"
    began = time.monotonic()
    running.close()
    assert time.monotonic() - began < 50  # the patient one would sleep for 60


def test_workers_that_cannot_start_end_the_batch(tmp_path: Path) -> None:
    engine = LocalEngine(2, replace(launch(), boot=BROKEN))
    with pytest.raises(VerifierError, match=r"cannot be started \(exit code 1: no such module as torch\)"):
        list(engine.run([instance(tmp_path, f"unsat_{k}") for k in range(3)], TERMS, Observer()))


def test_workers_get_their_share_and_let_waiting_threads_sleep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    boot = (
        "import os; os.write(2, f\"{os.environ['OMP_NUM_THREADS']} {os.environ['OMP_WAIT_POLICY']}\".encode());" + FAKE
    )
    supervisor = Supervisor(Launch(threads=3, verbose=True, boot=boot))
    try:
        supervisor.solve(TERMS.job(instance(tmp_path, "unsat")))
    finally:
        supervisor.close()
    assert capfd.readouterr().err.startswith("3 PASSIVE")
