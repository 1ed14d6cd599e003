"""Files of checkpoints: whole or refused, and never those of another instance."""

from __future__ import annotations

import logging
import os
import random
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from verifier.errors import InputError
from verifier.result.verdict import Reason
from verifier.search.checkpoint import CLASSES, Checkpoint, Identity, forget
from verifier.search.codec import decoded, encoded
from verifier.search.domains import Counts, Progress
from verifier.search.keeper import SavedRun
from verifier.search.look import Look, Tried
from verifier.search.saved import SavedGroups, SavedPart, SavedRegion, SavedRoot, SavedTree

OWN = Identity("a" * 64, "b" * 64, "1.0", {"search": {"batch": 256, "tiers": [{"method": "crown"}]}, "plugins": []})
LARGER = {"search": {"batch": 512, "tiers": [{"method": "crown"}]}, "plugins": []}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.search.checkpoint.PATIENCE", 0.2)


def saved(seconds: float = 1.5) -> SavedRun:
    box = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    region = SavedRegion(box, box + 1, (box[:, :1],), (box[:, 1:],))
    tree = SavedTree(SavedPart((), Reason.NUMERICS, -0.5), Counts({"t": 3}, 1, 2, 3, 0.25), 7, region, ((0, 2),))
    groups = SavedGroups((((0, (0, 2)),), ((4, (1,)),)), tree, Progress(), None)
    return SavedRun(SavedRoot(torch.tensor([-1.0, 0.5, -2.0]), (0,), (region,)), groups, 42, 1, seconds)


def written(folder: Path, run: SavedRun | None = None) -> Path:
    Checkpoint(str(folder), OWN).write(run or saved())
    return folder / "checkpoint"


def read(folder: Path, identity: Identity = OWN) -> SavedRun | None:
    return Checkpoint(str(folder), identity).found


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read(tmp_path / "new") is None
    written(tmp_path)
    found = read(tmp_path)
    assert found is not None
    assert (found.numbers, found.runs, found.seconds, found.reserve) == (42, 1, 1.5, None)
    assert torch.equal(found.root.lower, saved().root.lower)
    assert isinstance(found.search, SavedGroups)
    assert found.search.groups == (((0, (0, 2)),), ((4, (1,)),))
    assert isinstance(found.search.now, SavedTree)
    assert found.search.now.counts == Counts({"t": 3}, 1, 2, 3, 0.25)
    assert (found.search.now.part.doubt, found.search.now.part.undecided) == (Reason.NUMERICS, -0.5)
    assert found.search.now.boxes is not None
    assert torch.equal(found.search.now.boxes.u_hat[0], torch.tensor([[0.2]], dtype=torch.float64))


def test_a_file_that_ends_too_early_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    path = written(tmp_path)
    raw = path.read_bytes()
    for length in {0, 1, 5, *range(10, len(raw), 97), len(raw) - 1}:
        path.write_bytes(raw[:length])
        with pytest.raises(InputError, match=r"truncated|no checkpoint|another version"):
            read(tmp_path)
    path.write_bytes(raw + b"\0")
    with pytest.raises(InputError, match="truncated or damaged"):
        read(tmp_path)


def test_a_single_changed_bit_is_refused_wherever_it_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    raw, rng = path.read_bytes(), random.Random(0)
    for place in [*range(20, 60), *rng.sample(range(60, len(raw)), 60)]:
        changed = bytearray(raw)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(InputError):
            read(tmp_path)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(OWN, network="c" * 64), r"another network \(SHA-256 aaaaaaaaaaaa"),
        (replace(OWN, property="c" * 64), "another property"),
        (replace(OWN, property=None), "another property"),
        (replace(OWN, version="2.0"), "version 1.0, this is 2.0"),
        (replace(OWN, options=LARGER), "search.batch was 256, now it is 512"),
        (replace(OWN, options={**OWN.options, "plugins": ["x"]}), "plugins"),
        (replace(OWN, options={**OWN.options, "search": {"batch": 256, "tiers": []}}), "search.tiers"),
    ],
)
def test_checkpoints_of_others_are_refused(tmp_path: Path, other: Identity, said: str) -> None:
    path = written(tmp_path)
    with pytest.raises(InputError, match=said) as error:
        read(tmp_path, other)
    assert error.value.path == str(path)
    assert read(tmp_path) is not None


def test_one_run_at_a_time(tmp_path: Path) -> None:
    holder = Checkpoint(str(tmp_path), OWN)
    with pytest.raises(InputError, match="another run uses this folder"):
        Checkpoint(str(tmp_path), OWN)
    del holder
    Checkpoint(str(tmp_path), OWN)


@pytest.mark.parametrize("broken", ["os.fsync", "os.replace"])
def test_a_write_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    written(tmp_path, saved(1.0))
    checkpoint = Checkpoint(str(tmp_path), OWN)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "verifier"):
        patch.setattr(broken, full)
        for _ in range(3):
            checkpoint.write(saved(2.0))
    assert [record.message for record in caplog.records] == [
        "a checkpoint could not be written: No space left on device"
    ]
    del checkpoint
    found = read(tmp_path)
    assert found is not None
    assert found.seconds == 1.0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "lock"]


def test_a_checkpoint_is_on_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then its name is: a machine that loses its power has the old one or the new one."""
    happened, sync, rename = list[str](), os.fsync, os.replace

    def synced(number: int) -> None:
        happened.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        sync(number)

    def renamed(*names: Any) -> None:
        happened.append("renamed")
        rename(*names)

    checkpoint = Checkpoint(str(tmp_path), OWN)
    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.replace", renamed)
    checkpoint.write(saved())
    assert happened == ["file", "renamed", "folder"]


def test_what_a_killed_run_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / ".123.checkpoint").write_bytes(b"half")
    assert read(tmp_path) is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "lock"]
    forget(str(tmp_path))
    forget(str(tmp_path))
    assert read(tmp_path) is None


def test_a_writer_that_is_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """The old one or the new one: a process writes for ever, and is killed."""
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from search.test_checkpoint import OWN, saved\n"
        "from verifier.search.checkpoint import Checkpoint\n"
        "c = Checkpoint(sys.argv[1], OWN)\n"
        "k = 0\n"
        "while True:\n"
        "    k += 1; c.write(saved(float(k)))\n"
        "    if k == 1: print('written', flush=True)\n"
    )
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(tests), str(tests.parent)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    process.kill()
    process.wait()
    process.stdout.close()
    found = read(tmp_path)
    assert found is not None
    assert found.seconds >= 1.0


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="checkpoints cannot be written here") as error:
        Checkpoint(str(tmp_path / "file"), OWN)
    assert error.value.path == str(tmp_path / "file")


def test_what_a_search_looked_at_is_saved_with_its_counts() -> None:
    look = Look((Tried("dear", -1.0, 2.0), Tried("cheap", -1.25, 1.0)), 3, (1, 2))
    counts = Counts({"dear": 5}, looks=(look,))
    assert decoded(encoded(counts), CLASSES) == counts
