"""Proofs of several runs, each of which goes on where the one before was interrupted."""

from __future__ import annotations

import errno
import gc
import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from verifier.checker.check import check
from verifier.cli.main import run as command
from verifier.config import load_config
from verifier.errors import InputError
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Pipeline, Request, decide
from verifier.processes import forkable
from verifier.proofs.ledger import Incomplete, Ledger
from verifier.proofs.log import Born, Covered, Dropped, Note, NoteLog, Rooted, Said, Sharper
from verifier.result.result import Result
from verifier.result.verdict import Verdict
from verifier.search.boxes.space import InputOptions
from verifier.search.checkpoint import Checkpoint
from verifier.search.journal import Journal
from verifier.search.keeper import Keeper, SavedRun
from verifier.search.loop import Search
from verifier.search.pace import Pace
from verifier.search.problem import ProblemSearch

SMALL = ("search.batch=8", "search.fill=4", "falsify.enabled=false", "search.checkpoint.seconds=0.001")
STILL = "search.sharpen.after=null"
SIGNS = ("digits_fc", "fc_branch_1438")
MOST = 6
"""Runs that are interrupted."""

FORKS = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")


# ---------------------------------------------------------------- the log

NOTES: list[Note] = [
    Rooted({3: [b"closed", (9, b"\1\2")]}, (0, 2)),
    Born(0, -1, 0, ()),
    Said(0, [b"narrowed"], last=False),
    Born(1, 0, 0, ((1, 4, 1), (2, 5, 1, 0.25))),
    Born(2, 0, 0, ((1, 4, -1),)),
    Said(1, [b"one", (3, b"\7")], last=True),
    Covered(0, ((1, 4, -1),), [b"two"]),
    Sharper(0, 1, [b"better"], root=True),
    Dropped((2,)),
]


def put(path: str, notes: Sequence[Note]) -> tuple[int, str]:
    """Notes of a run that has ended: how far they count."""
    log = NoteLog(path)
    for note in notes:
        log.put(note)
    return log.counted()


def written(ledger: Ledger) -> bytes:
    """All that a proof by signs of the first domain holds."""
    return b"".join(piece for pieces in ledger.by_signs(0, 0, 1) for piece in pieces if isinstance(piece, bytes))


def test_another_run_knows_what_was_counted_and_nothing_that_followed(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    log, counted = NoteLog(path), []
    for note in NOTES:
        log.put(note)
        counted.append(log.counted())
    del log
    raw = Path(path).read_bytes()
    assert counted[-1][0] == len(raw)
    for many, known in enumerate(counted, 1):
        Path(path).write_bytes(raw)
        again = NoteLog(path, known)
        found = list(again.known())
        assert [note for _, note in found] == NOTES[:many]
        assert all(again.pieces(place) == note.pieces for place, note in found if isinstance(note, Said))
        del again
        assert Path(path).read_bytes() == raw[: known[0]]


def test_a_run_goes_on_writing_where_the_one_before_was_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    log = NoteLog(path)
    for note in NOTES[:4]:
        log.put(note)
    counted = log.counted()
    log.put(NOTES[5])  # in vain
    del log
    log = NoteLog(path, counted)
    assert len(list(log.known())) == 4
    for note in NOTES[4:]:
        log.put(note)
    counted = log.counted()
    del log
    assert [note for _, note in NoteLog(path, counted).known()] == NOTES


def test_a_log_that_is_not_what_was_counted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    counted = put(str(path), NOTES)
    raw = path.read_bytes()
    damaged = raw[:40] + bytes([raw[40] ^ 1]) + raw[41:]
    for wrong in (raw[:-1], damaged, b""):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="damaged"):
            NoteLog(str(path), counted)
        assert path.read_bytes() == wrong


class Full(io.BytesIO):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_disk_that_takes_no_more_ends_the_proof_and_not_the_search(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Full(1000))
    request = replace(QUICK["signs"].request(root, tmp_path), resume=None)
    result = decide(request, request.status())
    assert (result.verdict, result.proof) == (Verdict.UNSAT, None)
    assert result.message == "no proof was written: [Errno 28] No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_on_disk_does_not_count(tmp_path: Path) -> None:
    log = NoteLog(str(tmp_path / "notes"))
    log._file = Full(100)
    for note in NOTES:
        log.put(note)
    with pytest.raises(OSError, match="No space left"):
        log.counted()


def test_what_became_of_a_domain_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    """Its search is repeated, and splits it elsewhere; what narrowed it belongs to it."""
    path = str(tmp_path / "notes")
    counted = put(path, NOTES[:7])
    ledger = Ledger(NoteLog(path, counted), [0])
    with pytest.raises(Incomplete):
        ledger.subtrees([0], [0])
    ledger.keep(
        [Born(5, 0, 0, ((1, 7, 1),)), Born(6, 0, 0, ((1, 7, -1),)), Said(5, [b"A"], True), Said(6, [b"B"], True)]
    )
    assert ledger.subtrees([0], [0]) == [([0], 0)]
    assert written(ledger) == b"narrowed\1\1\7AB"


def test_a_third_run_forgets_what_the_second_one_forgot(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    counted = put(path, NOTES[:6])
    second = Ledger(NoteLog(path, counted), [0])
    second.keep([Born(5, 0, 0, ((1, 7, 1),)), Born(6, 0, 0, ((1, 7, -1),)), Said(5, [b"A"], True)])
    counted = second.counted()
    del second
    third = Ledger(NoteLog(path, counted), [6])
    third.keep([Said(6, [b"B"], True)])
    assert written(third) == b"narrowed\1\1\7AB"


def test_open_domains_that_nobody_has_told_of_are_refused() -> None:
    with pytest.raises(InputError, match="know nothing of domain 7"):
        Ledger(left=[7])


# ---------------------------------------------------------------- runs that are interrupted


class Interrupted(Exception):
    """After a checkpoint, and a few steps that are lost."""


@dataclass
class Breaks:
    """Ends runs, each after so many checkpoints and further steps."""

    rng: random.Random
    checkpoints: int = 0
    steps: int = 0
    runs: int = 0
    together: int = 2**28

    def again(self, last: bool) -> None:
        self.runs += 1
        self.checkpoints = 10**9 if last else self.rng.randint(1, 3)
        self.steps = self.rng.randint(0, 3)


class Seldom(Pace):
    """Forks say what is left of their parts now and then, so that a checkpoint finds them far beyond that."""

    def due(self, remaining: float = float("inf")) -> bool:
        return random.random() < 0.15


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Breaks]:
    breaks = Breaks(random.Random(0))
    write, look, whole = Checkpoint.write, Keeper.look, Pipeline.whole

    def counted(checkpoint: Checkpoint, run: SavedRun) -> None:
        if breaks.checkpoints > 0:  # else those steps would not be lost
            write(checkpoint, run)
        breaks.checkpoints -= 1

    def breaking(keeper: Keeper, search: Search) -> None:
        look(keeper, search)
        if breaks.checkpoints <= 0 and search.outcome is None:
            breaks.steps -= 1
            if breaks.steps < 0:
                raise Interrupted

    def cutting(pipeline: Pipeline, journal: Journal) -> ProblemSearch:
        inputs = InputOptions(batch=4, least_children=1)
        return replace(whole(pipeline, journal), inputs=inputs, root_bytes=breaks.together)

    monkeypatch.setattr("verifier.search.pace.SHARE", float("inf"))
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.search.parallel.Pace", Seldom)
    monkeypatch.setattr("verifier.search.race.FIRST_SLICE", 0.05)
    monkeypatch.setattr(Checkpoint, "write", counted)
    monkeypatch.setattr(Keeper, "look", breaking)
    monkeypatch.setattr(Pipeline, "whole", cutting)
    yield breaks
    gc.collect()


def files(root: Path, names: tuple[str, str]) -> tuple[str, str]:
    net, prop = names
    return str(root / f"properties/onnx/{net}.onnx"), str(root / f"properties/vnnlib/{prop}.vnnlib")


def interrupted(breaks: Breaks, request: Request) -> Result:
    """The result of the run that was not interrupted."""
    for turn in range(MOST + 1):
        breaks.again(turn == MOST)
        try:
            return decide(request, request.status())
        except Interrupted:
            gc.collect()  # it leaves the folder to the next run
    raise AssertionError("the last run has not ended")


@dataclass(frozen=True)
class Kind:
    """An instance, and how it is searched."""

    names: tuple[str, str]
    words: tuple[str, ...] = ()
    threads: int = 1
    trim: bool = False
    together: int = 2**28  # bytes of boxes that are searched as one group

    def request(self, root: Path, folder: Path) -> Request:
        given, config = GivenFiles(*files(root, self.names)), load_config("auto", (*SMALL, *self.words))
        machine, proof, resume = Machine("cpu", self.threads, 120.0), str(folder / "proof"), str(folder / "kept")
        return Request(given, config, machine, proof=proof, trim=self.trim, resume=resume)


QUICK = {
    "signs": Kind(SIGNS, (STILL,)),
    "boxes": Kind(("toy", "toy_positive")),
    "moving": Kind(SIGNS, ("search.sharpen.after=0.2",)),
}
LONG = {
    "signs, forks": Kind(SIGNS, (STILL,), 3),
    "signs, forks, trimmed": Kind(SIGNS, (STILL,), 2, True),
    "moving, forks": Kind(SIGNS, ("search.sharpen.after=0.2",), 2),
    "boxes, forks": Kind(("pendulum_lyapunov", "pendulum_decrease"), ("search.splitting=inputs",), 3),
    "a race": Kind(("pendulum_lyapunov", "pendulum_decrease"), (STILL,), 2),
    "groups of boxes": Kind(("digits_fc", "fc_boxes_1447"), (STILL,), together=1),
    "clauses of several rows": Kind(("digits_conv", "conv_top2_1440"), (STILL,), 2),
}


@FORKS
@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LONG)])
def test_a_proof_of_several_runs_is_accepted(breaks: Breaks, root: Path, tmp_path: Path, kind: str) -> None:
    case = (QUICK | LONG)[kind]
    breaks.together = case.together
    for seed in range(2 if kind in QUICK else 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        breaks.rng = random.Random(seed)
        result = interrupted(breaks, case.request(root, folder))
        assert (result.verdict, result.message) == (Verdict.UNSAT, None)
        assert check(*files(root, case.names), str(folder / "proof")).verdict == "accepted"
    assert breaks.runs > 3


def test_nothing_is_left_of_a_run_that_has_its_proof(root: Path, tmp_path: Path) -> None:
    paths, kept, proof = files(root, SIGNS), tmp_path / "kept", tmp_path / "proof"
    assert command([*paths, "--threads", "1", "--resume", str(kept), "--proof", str(proof), "-q"]) == 0
    assert proof.exists()
    assert [path.name for path in kept.iterdir()] == ["lock"]


def test_a_checkpoint_without_notes_is_refused_by_a_run_that_wants_a_proof(
    breaks: Breaks, root: Path, tmp_path: Path
) -> None:
    request = QUICK["signs"].request(root, tmp_path)
    for first, then, said in ((None, request.proof, "without --proof"), (request.proof, None, "with --proof")):
        breaks.again(False)
        with pytest.raises(Interrupted):
            decide(replace(request, proof=first), request.status())
        gc.collect()
        with pytest.raises(InputError, match=f"is one of a run {said}; remove it to begin anew"):
            decide(replace(request, proof=then), request.status())
        gc.collect()
        (tmp_path / "kept" / "checkpoint").unlink()
