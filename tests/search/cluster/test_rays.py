"""Workers of a real Ray cluster, one of this machine; they are killed, and replaced."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from search.binary import Binary, BinaryParcel
from search.cluster.grown import below, size

from verifier import ray_cluster
from verifier.cli.main import run as command
from verifier.errors import InputError
from verifier.search.cluster.rays import RayPool
from verifier.search.cluster.search import ClusterSearch
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.saved import Keeping, SavedTree

SLOW = ("search.batch=4", "search.fill=2", "search.sharpen.after=null", "falsify.enabled=false")
SAME = (
    "search.splitting=relus",
    "search.tiers=[{method: big_m, iterations: 0}]",
    "search.fill=1",
    "bounding.intermediate=interval",
)
"""A domain has one bound and one way to be split, whoever meets it when."""


def words(root: Path, *more: str) -> list[str]:
    files = [str(root / "properties/onnx/digits_fc.onnx"), str(root / "properties/vnnlib/fc_branch_1438.vnnlib")]
    return [*files, "--config", "no_cuts", *(word for key in SLOW for word in ("--set", key)), *more]


def test_without_ray_one_sentence_says_what_to_install(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert command(words(root, "--engine", "ray")) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "error: --engine ray needs Ray: pip install 'strata-verifier[ray]'\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--address", "auto"], "--address is that of a Ray cluster: add --engine ray"),
    ],
)
def test_what_does_not_go_together_is_refused(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(words(root, *more)) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err


# ---------------------------------------------------------------- a tree whose size is known


def actors(ancestor: int) -> list[int]:
    """The processes of Ray that come from that one and hold a worker which follows an order."""
    parents, named = {}, []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(folder.name)] = int(stat[1])
                named += [int(folder.name)] if "ray::Actor.follow" in (folder / "cmdline").read_text() else []
        except OSError:  # it has just ended
            continue
    return [process for process in named if ancestor in _line(process, parents)]


def _line(process: int, parents: dict[int, int]) -> list[int]:
    """Its parent, the parent of that, and so on."""
    found = []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of this machine, with three cores: a new worker may come while a lost one is still counted."""
    library = pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    with pytest.MonkeyPatch.context() as patch:  # actors find the modules of these tests
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        ray_cluster.join(library, None, 3)
        yield library
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray does not wait for the processes that it ends
        library.shutdown()
        gc.collect()


class AllHere(RayPool):
    """Begins when all workers have come."""

    def __init__(self, ray: Any, parcel: Any, count: int) -> None:
        super().__init__(ray, parcel, count)
        self._here: list[int] = []
        while len(self._here) < count:
            self._here += super().come()
            time.sleep(0.01)

    def come(self) -> list[int]:
        found, self._here = self._here, []
        return [*found, *super().come()]


def check(saved: SavedTree | None, depth: int) -> None:
    """Open domains are the rest of the tree."""
    assert saved is not None
    numbers = [k for part in saved.part.domains for k in part.number.tolist()]  # type: ignore[attr-defined]
    assert len(numbers) == len(set(numbers))
    assert saved.counts.domains + sum(below(k, depth) for k in numbers) == size(depth)


@pytest.mark.usefixtures("unchecked")
def test_actors_count_every_domain_once_whoever_is_killed(ray: Any) -> None:
    depth, killed = 12, list[int]()
    tree = BranchAndBound(Binary(depth), Limits())
    made = partial(AllHere, ray, BinaryParcel(depth), 2)
    searched = ClusterSearch(tree, Limits(), made, lambda point: None, Keeping(0.5, 2**20))
    with closing(searched):
        while searched.outcome is None:
            searched.step()
            if searched.outcome is None:
                check(searched.saved(0), depth)
            due = not killed and searched.progress.domains > size(depth) // 8
            if due and (busy := actors(os.getpid())):
                os.kill(busy[0], signal.SIGKILL)
                killed.append(busy[0])
    assert (searched.outcome.witness, searched.outcome.reason) == (None, None)
    assert searched.progress.domains == size(depth)
    assert searched.traffic.lost == len(killed) == 1
    assert searched.traffic.messages > 20
    # The coordinator had begun the tree; all else was done by workers.
    assert tree.space.journal.counts.domains < 100
    assert len({process for process, _ in tree.space.history}) == 1


@dataclass(frozen=True)
class Broken:
    """A parcel that arrives where it cannot be used."""

    def worker(self) -> None:
        raise ImportError("no such thing here")


def test_a_worker_that_cannot_begin_ends_the_run_and_says_why(ray: Any) -> None:
    """Others in its place could not either."""
    pool = RayPool(ray, Broken(), 1)  # type: ignore[arg-type]

    def wait() -> None:
        while not pool.come():
            time.sleep(0.01)

    with closing(pool), pytest.raises(InputError, match="a worker of Ray cannot begin: ImportError: no such thing"):
        wait()


# ---------------------------------------------------------------- an instance, from the command line to the answer


def told(log: str) -> dict[str, float]:
    """What the coordinator says of its messages."""
    (line,) = re.findall(r"cluster: Traffic\((.*)\)", log)
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", line)}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, 2])
def test_workers_of_ray_prove_what_one_process_proves(root: Path, tmp_path: Path, kills: int) -> None:
    """With these options the tree does not depend on who searches it."""
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    out, log = tmp_path / "answer.json", tmp_path / "log"
    argv = [sys.executable, "-m", "verifier", *words(root), *(word for key in SAME for word in ("--set", key))]
    subprocess.run([*argv, "--set", "search.batch=256", "--threads", "1", "--json", str(out)], check=True)
    alone = json.loads(out.read_text())["statistics"]["domains"]
    more = ["--set", "search.batch=2", "--engine", "ray", "--threads", "2", "--json", str(out), "-v"]
    with log.open("w") as stderr:
        process = subprocess.Popen([*argv, *more], stdout=subprocess.DEVNULL, stderr=stderr)
        killed = 0
        while process.poll() is None:
            time.sleep(0.2)
            if killed < kills and (some := actors(process.pid)):
                os.kill(some[0], signal.SIGKILL)
                killed += 1
                time.sleep(1.0)
    found, traffic = json.loads(out.read_text()), told(log.read_text())
    assert (found["verdict"], process.returncode) == ("unsat", 0), log.read_text()
    assert found["statistics"]["domains"] == alone
    assert killed == kills >= traffic["lost"]
    assert traffic["messages"] > 0
    assert traffic["worked"] > 0
