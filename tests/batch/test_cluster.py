"""Ray: the same batch on a cluster, here one of this machine with two workers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch.fakes import FAKE, instance

from verifier.batch.cluster import RETRIES, RayEngine, _solve, _supervisor
from verifier.batch.engine import LocalEngine, Observer
from verifier.batch.instances import read_instances
from verifier.batch.jobs import Terms
from verifier.batch.process import Launch
from verifier.checker.check import check
from verifier.errors import InputError
from verifier.machine import Machine

PROPERTIES = Path(__file__).resolve().parents[2] / "properties"
QUICK = "cart_*"


def test_without_ray_the_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'strata-verifier\[ray\]'"):
        next(RayEngine().run([instance(tmp_path, "unsat")], Terms(), Observer()))


needs_ray = pytest.mark.usefixtures("ray_there")


@pytest.fixture
def ray_there() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")


def verdicts(path: Path) -> dict[str, str]:
    records = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
    assert len({r["vnnlib"] for r in records}) == len(records)
    return {r["vnnlib"]: r["verdict"] for r in records}


def command(out: Path, *options: str) -> list[str]:
    argv = ["batch", str(PROPERTIES), "--filter", QUICK, "--out", str(out), "--threads", "1", "--jobs", "2", *options]
    return [sys.executable, "-m", "verifier", *argv]


def processes(text: str) -> list[int]:
    """Those whose command line, or title, contains a text."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def test_a_task_that_has_travelled_writes_its_proof(tmp_path: Path) -> None:
    """What Ray does with a task, without Ray: it is pickled, and the process there gives it to its own worker."""
    terms = Terms(machine=Machine("cpu", 1), proofs=str(tmp_path))
    (one,) = [i for i in read_instances([str(PROPERTIES)]) if i.vnnlib.endswith("toy_positive.vnnlib")]
    job, launch = pickle.loads(pickle.dumps((terms.job(one), Launch())))
    try:
        data = json.loads(_solve(job, launch).result)
    finally:
        _supervisor(launch).close()
        _supervisor.cache_clear()
    assert data["proof"]["file"] == terms.proof(one)
    assert check(one.network, one.prop, data["proof"]["file"]).verdict == "accepted"


@needs_ray
@pytest.mark.slow
def test_the_proofs_of_a_batch_on_a_cluster_are_accepted(tmp_path: Path) -> None:
    argv = command(tmp_path / "ray", "--engine", "ray", "-q", "--proofs", str(tmp_path / "proofs"))
    subprocess.run(argv, check=True, timeout=300)
    unsat = sum(verdict == "unsat" for verdict in verdicts(tmp_path / "ray").values())
    assert len(list((tmp_path / "proofs").iterdir())) == unsat > 0
    checked = [sys.executable, "-m", "verifier", "check", "--batch", str(tmp_path / "ray")]
    assert subprocess.run(checked, timeout=300, check=False).returncode == 0


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_limits_and_losses_are_as_on_one_machine(tmp_path: Path) -> None:
    """Only a worker that dies is treated differently: Ray repeats its instance."""
    names = ("unsat", "bad", "unknown", "once", "stuck", "killed")
    instances = [instance(tmp_path, name, timeout=1.0) for name in names]
    terms, launch = Terms(), Launch(boot=FAKE)
    found = {
        kind: {i.vnnlib: json.loads(r.result) for i, r in engine.run(instances, terms, Observer())}
        for kind, engine in {"ray": RayEngine(None, 2, launch), "local": LocalEngine(2, launch)}.items()
    }
    told = {kind: {name: data["verdict"] for name, data in of.items()} for kind, of in found.items()}
    assert told["ray"] == {
        "unsat.vnnlib": "unsat",
        "bad.vnnlib": "error",
        "unknown.vnnlib": "unknown",
        "once.vnnlib": "unsat",
        "stuck.vnnlib": "timeout",
        "killed.vnnlib": "error",
    }
    assert told["local"] == told["ray"]  # `once` died under Ray and was repeated there
    assert (tmp_path / "once.died").exists()
    assert found["ray"]["killed.vnnlib"]["reason"] == "the worker process died (SIGKILL)"
    assert RETRIES > 0


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_cannot_do_it_is_refused(tmp_path: Path) -> None:
    asked = [instance(tmp_path, "unsat")]
    for engine, terms, words in (
        (RayEngine(None, 1), Terms(machine=Machine(threads=2)), "no node of the Ray cluster has 2 cores"),
        (RayEngine(None, 1), Terms(machine=Machine("cuda", 1)), "no node of the Ray cluster has a GPU"),
        (RayEngine("127.0.0.1:1", 1), Terms(), "no Ray cluster at 127.0.0.1:1"),
    ):
        with pytest.raises(InputError, match=words):
            next(engine.run(asked, terms, Observer()))


@needs_ray
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_the_verdicts_are_those_of_one_machine_also_when_a_process_of_ray_is_killed(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "local", "-q"), check=True, timeout=300)
    before = set(processes("ray::_solve"))
    with subprocess.Popen(command(tmp_path / "ray", "--engine", "ray", "-q")) as process:
        limit = time.monotonic() + 120
        while not (victims := set(processes("ray::_solve")) - before):
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.02)
        os.kill(victims.pop(), signal.SIGKILL)
        assert process.wait(timeout=300) == 0
    assert verdicts(tmp_path / "ray") == verdicts(tmp_path / "local")
    assert len(verdicts(tmp_path / "ray")) == 6
