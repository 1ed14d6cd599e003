"""The parts of a batch together, and the moments in which an interrupt is awkward."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from batch.fakes import decide, instance

from verifier.batch.engine import Engine, Observer, Run
from verifier.batch.instances import Instance
from verifier.batch.jobs import Reply, Terms
from verifier.batch.judge import Demands, Kind, Require
from verifier.batch.run import Plan, run
from verifier.batch.store import opened
from verifier.batch.worker import Desk
from verifier.errors import InputError, VerifierError
from verifier.files import digest
from verifier.result.verdict import Reason


class Here(Engine):
    """Answers at once, in this process; then fails, if it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.failure = failure

    def run(self, instances: Sequence[Instance], terms: Terms, observer: Observer) -> Run:
        for asked in instances:
            self.asked.append(asked.vnnlib)
            job = terms.job(asked)
            yield asked, Reply(decide(job, job.status()).as_json().encode(), 1.0)
        if self.failure is not None:
            raise self.failure


def plan(folder: Path, *names: str, engine: Engine | None = None) -> Plan:
    return Plan(tuple(instance(folder / "family", name) for name in names), Terms(), engine or Here(), quiet=True)


def test_results_come_in_the_order_of_the_lists_and_are_judged(tmp_path: Path) -> None:
    with opened(str(tmp_path / "out")) as store:
        run(plan(tmp_path, "unsat_2"), store, Demands())
        engine = Here()
        found = run(
            plan(tmp_path, "unknown", "unsat_2", "unsat_1", engine=engine), store, Demands(require=Require.UNSAT)
        )
    assert engine.asked == ["unknown.vnnlib", "unsat_1.vnnlib"]
    assert [r.vnnlib for r in found.records] == ["unknown.vnnlib", "unsat_2.vnnlib", "unsat_1.vnnlib"]
    assert [f.record.vnnlib for f in found.findings] == ["unknown.vnnlib"]
    assert found.exit_code == 1
    table = (tmp_path / "out" / "results.csv").read_text()
    assert [row.split(",")[2] for row in table.splitlines()] == [r.vnnlib for r in found.records]


def test_an_interrupt_after_a_line_was_written_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with opened(str(tmp_path / "out")) as store:
        found = run(plan(tmp_path, "unsat_1", "unsat_2"), store, Demands())
    assert ([r.vnnlib for r in found.records], found.interrupted, found.exit_code) == (["unsat_1.vnnlib"], True, 3)


def test_an_error_of_the_engine_keeps_what_is_done(tmp_path: Path) -> None:
    with opened(str(tmp_path / "out")) as store, pytest.raises(VerifierError, match="no more workers"):
        run(plan(tmp_path, "unsat", engine=Here(VerifierError("no more workers"))), store, Demands())
    assert (tmp_path / "out" / "results.csv").read_text().count("\n") == 1


def test_files_that_changed_are_decided_again_and_stand_there_once(tmp_path: Path) -> None:
    with opened(str(tmp_path / "out")) as store:
        run(plan(tmp_path, "unsat_1", "unsat_2"), store, Demands())
        engine = Here()
        changed = plan(tmp_path, "unsat_1", "unsat_2", engine=engine)
        Path(changed.instances[1].prop).write_text("another property")
        run(changed, store, Demands())
        assert engine.asked == ["unsat_2.vnnlib"]
        lines = [json.loads(line) for line in store.path.read_text().splitlines()]
        assert [line["vnnlib"] for line in lines] == ["unsat_1.vnnlib", "unsat_2.vnnlib"]


def test_a_deadline_that_comes_after_the_answer_is_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    replies = io.BytesIO()
    job = Terms().job(instance(tmp_path, "unsat"))
    with Desk(job, replies) as desk:
        desk.answer = decide(job, desk.status)
    desk.overdue(Reason.TIMEOUT)
    assert ends == []
    (line,) = replies.getvalue().splitlines()
    assert json.loads(line)["result"]["verdict"] == "unsat"


def test_an_error_is_the_answer_for_its_instance(tmp_path: Path) -> None:
    replies = io.BytesIO()

    with Desk(Terms().job(instance(tmp_path, "unsat")), replies):
        raise InputError("cannot be read", "p")
    assert json.loads(replies.getvalue())["result"]["reason"] == "p: cannot be read"


class Proving(Here):
    """Writes something in the place of every proof; only of some instances it says so."""

    def run(self, instances: Sequence[Instance], terms: Terms, observer: Observer) -> Run:
        for asked in instances:
            job = terms.job(asked)
            assert job.proof is not None
            assert not Path(job.proof).exists()
            Path(job.proof).write_bytes(b"a proof")
            result = decide(job, job.status())
            told = {"file": job.proof, "sha256": digest(b"a proof")} if "told" in asked.vnnlib else None
            yield asked, Reply(replace(result, proof=told).as_json().encode(), 1.0)


def test_no_proof_lies_there_that_no_result_speaks_of(tmp_path: Path) -> None:
    (tmp_path / "proofs").mkdir()
    given = plan(tmp_path, "unsat_told", "unsat_late", engine=Proving())
    given = replace(given, terms=Terms(proofs=str(tmp_path / "proofs")))
    told, late = (Path(str(given.terms.proof(asked))) for asked in given.instances)
    late.write_bytes(b"of an earlier batch")
    with opened(str(tmp_path / "out")) as store:
        found = run(given, store, Demands())
        assert list((tmp_path / "proofs").iterdir()) == [told]
        told.unlink()
        run(given, store, Demands())
    assert list((tmp_path / "proofs").iterdir()) == [told]
    assert [(f.kind, f.record.vnnlib, f.fails) for f in found.findings] == [
        (Kind.UNPROVED, "unsat_late.vnnlib", False),
    ]
    assert found.exit_code == 0
