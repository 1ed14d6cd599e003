"""Proofs of trees that workers have searched: the checker accepts them, whoever was lost and whatever came too late."""

from __future__ import annotations

import gc
import json
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from search.cluster.local import LocalCluster

from verifier import ray_cluster
from verifier.checker.check import check
from verifier.config import load_config
from verifier.errors import SoundnessError
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Pipeline, Request, decide
from verifier.proofs.log import Born, Dropped, Said
from verifier.result.result import Result
from verifier.result.verdict import Verdict
from verifier.search.boxes.space import InputOptions
from verifier.search.cluster import policy, search
from verifier.search.cluster.policy import Coordinator
from verifier.search.cluster.worker import Answer, PartWorker
from verifier.search.domains import Counts
from verifier.search.journal import BLOCK, Journal, Note
from verifier.search.problem import ProblemSearch
from verifier.search.saved import Keeping

SMALL = ("search.batch=8", "search.fill=4", "search.sharpen.after=null", "falsify.enabled=false")
SIGNS = ("digits_fc", "fc_branch_1438")
BOXES = ("toy", "toy_positive")


@dataclass
class Runs:
    """Runs instances on clusters of this process, whose workers take one step at a time and tell now and then."""

    root: Path
    folder: Path
    clusters: list[LocalCluster] = field(default_factory=list)
    seed: int = 0
    deadly: float = 0.2
    boxes: int = 4  # that are cut at a time

    @property
    def proof(self) -> Path:
        return self.folder / "proof"

    def files(self, names: tuple[str, str]) -> tuple[str, str]:
        net, prop = names
        return tuple(str(self.root / "properties" / name) for name in (f"onnx/{net}.onnx", f"vnnlib/{prop}.vnnlib"))  # type: ignore[return-value]

    def decided(self, names: tuple[str, str], *words: str, trim: bool = False, resume: bool = False) -> Result:
        config, machine = load_config("auto", (*SMALL, *words)), Machine("cpu", 1, 120.0)
        given, proof = GivenFiles(*self.files(names)), str(self.proof)
        trace, kept = (None, str(self.folder / "kept")) if resume else (str(self.folder / "trace"), None)
        request = Request(given, config, machine, trace=trace, proof=proof, trim=trim, resume=kept, ray=True)
        return decide(request, request.status())

    def judged(self, names: tuple[str, str]) -> str:
        return check(*self.files(names), str(self.proof)).verdict

    @property
    def kills(self) -> int:
        return sum(pool.kills for cluster in self.clusters for pool in cluster.pools)


@pytest.fixture
def runs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs, usual = Runs(root, tmp_path), Pipeline.whole

    def cluster(pipeline: Pipeline) -> LocalCluster:
        keeping = Keeping(0.02, 2**20)
        runs.clusters.append(LocalCluster(pipeline.target.model, keeping, 0.0, seed=runs.seed, deadly=runs.deadly))
        return runs.clusters[-1]

    def whole(pipeline: Pipeline, journal: Journal) -> ProblemSearch:
        return replace(usual(pipeline, journal), inputs=InputOptions(batch=runs.boxes, least_children=1))

    monkeypatch.setattr(ray_cluster, "imported", lambda: None)
    monkeypatch.setattr(Pipeline, "_cluster", cluster)
    monkeypatch.setattr(Pipeline, "whole", whole)
    for module in (policy, search):
        monkeypatch.setattr(module, "WORTHWHILE", 1)
    return runs


QUICK = {"signs": SIGNS, "boxes": BOXES}
LONG = {
    "clauses of several rows": ("digits_conv", "conv_top2_1440"),
    "a race": ("cart_controller", "cart_deviation"),
    "clipped boxes": ("pendulum_lyapunov", "pendulum_decrease"),
    "residual": ("digits_res", "res_branch_1441"),
}


LOSSES = [
    *((case, 0) for case in QUICK),
    *(pytest.param(case, seed, marks=pytest.mark.slow) for case in QUICK for seed in (1, 2)),
    *(pytest.param(case, 0, marks=pytest.mark.slow) for case in LONG),
]


@pytest.mark.parametrize(("case", "seed"), LOSSES)
def test_proofs_of_workers_that_are_lost_are_accepted(runs: Runs, case: str, seed: int) -> None:
    names, runs.seed, runs.boxes = (QUICK | LONG)[case], seed, 64 if case == "a race" else 4
    result = runs.decided(names)
    assert (result.verdict, result.message) == (Verdict.UNSAT, None)
    assert runs.judged(names) == "accepted"
    assert runs.kills


@pytest.mark.slow
@pytest.mark.parametrize("trim", [False, True])
def test_proofs_of_searches_that_move_before_the_workers_come_are_accepted(runs: Runs, trim: bool) -> None:
    for runs.seed in range(2):
        assert runs.decided(SIGNS, "search.sharpen.after=0", trim=trim).verdict is Verdict.UNSAT
        assert runs.judged(SIGNS) == "accepted"


def test_a_proof_is_trimmed_by_workers_too(runs: Runs) -> None:
    runs.decided(SIGNS, trim=True)
    assert runs.judged(SIGNS) == "accepted"
    assert runs.kills > 0


@pytest.mark.parametrize(("names", "splitting"), [(SIGNS, "relus"), (BOXES, "inputs")])
def test_a_coordinator_that_ended_too_early_is_continued_with_its_notes(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], splitting: str
) -> None:
    monkeypatch.setattr("verifier.search.pace.SHARE", float("inf"))
    often, results = ("search.checkpoint.seconds=0.001", f"search.splitting={splitting}"), list[Result]()
    for runs.seed, most in enumerate(("15", "30", "null")):
        results.append(runs.decided(names, *often, f"search.max_domains={most}", resume=True))
        gc.collect()  # it leaves the folder to the next one
    assert results[0].verdict is Verdict.UNKNOWN
    assert (results[-1].verdict, results[-1].message) == (Verdict.UNSAT, None)
    assert results[-1].statistics.earlier_runs > 1
    assert runs.judged(names) == "accepted"
    assert runs.kills


def test_the_trace_has_every_domain_once_and_after_its_parent(runs: Runs) -> None:
    began = time.monotonic()
    result = runs.decided(SIGNS)
    taken, known = time.monotonic() - began, dict[int, int]()
    for line in (runs.folder / "trace").read_text().splitlines():
        domain = json.loads(line)
        assert domain["parent"] is None or domain["parent"] in known
        assert domain["id"] not in known
        known[domain["id"]] = 0 if domain["closed"] else 1
        if domain["parent"] is not None:
            known[domain["parent"]] = 0
        assert 0 <= domain["time"] <= taken
    assert not any(known.values())
    assert len(known) == result.statistics.domains
    assert len({number // BLOCK for number in known}) > 2, "several workers have made domains"


# ---------------------------------------------------------------- what must not be lost


def proved(note: object) -> list[object]:
    """What a note tells a proof; nothing if it is for somebody else."""
    return [one for one in note if isinstance(one, Born | Said | Dropped)] if isinstance(note, list) else []


@pytest.mark.parametrize("names", [SIGNS, BOXES])
def test_without_one_closing_there_is_no_proof(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Some worker's, on its way."""
    receive, dropped = Journal.receive, list[Note]()

    def forgetful(journal: Journal, notes: Sequence[Note]) -> None:
        lost = [one for one in notes if any(isinstance(said, Said) and said.last for said in proved(one[2]))][:1]
        dropped.extend(() if dropped else lost)
        receive(journal, [one for one in notes if one not in dropped])

    monkeypatch.setattr(Journal, "receive", forgetful)
    result = runs.decided(names)
    assert dropped
    assert (result.verdict, result.proof) == (Verdict.UNSAT, None)
    assert str(result.message).startswith("no proof was written: nothing that was written down closes clause")
    assert not runs.proof.exists()


@pytest.mark.parametrize("names", [SIGNS, BOXES])
def test_a_coordinator_that_forgets_a_part_has_no_proof(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """The search answers `unsat`, which is wrong to say so early; nothing that was written down agrees."""
    lost = Coordinator.lost

    def forgets(coordinator: Coordinator[object], worker: int) -> Counts:
        again = lost(coordinator, worker)
        coordinator._waiting.clear()
        return again

    monkeypatch.setattr(Coordinator, "lost", forgets)
    result = runs.decided(names)
    assert runs.kills
    assert (result.verdict, result.proof) == (Verdict.UNSAT, None)
    assert str(result.message).startswith("no proof was written: nothing that was written down closes clause")


def test_notes_of_work_that_does_not_count_are_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    follow = PartWorker.follow

    def hasty(worker: PartWorker, *words: object) -> Answer:  # type: ignore[type-arg]
        answer = follow(worker, *words)  # type: ignore[arg-type]
        notes, worker._notes = (*answer.notes, *worker._notes), []
        return replace(answer, notes=notes)

    monkeypatch.setattr(PartWorker, "follow", hasty)
    with pytest.raises(SoundnessError, match="will be done again"):
        runs.decided(SIGNS)


def test_what_makes_notes_elsewhere_is_small(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parcel has the problem once, and nothing of what was heard before it was sent."""
    sizes, envoys = list[int](), Journal.envoys

    def weighed(journal: Journal) -> tuple[object, ...]:
        found = envoys(journal)
        sizes.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(Journal, "envoys", weighed)
    runs.decided(SIGNS)
    net, prop = runs.files(SIGNS)
    assert sizes
    assert max(sizes) < 4 * (Path(net).stat().st_size + Path(prop).stat().st_size) + 2**16
