"""Which results of an earlier batch still count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from batch.fakes import instance

from verifier.batch.instances import Instance
from verifier.batch.jobs import Reply, Terms, line_of
from verifier.batch.run import Unfinished, unfinished
from verifier.batch.store import Store, opened
from verifier.config import load_config
from verifier.errors import InputError
from verifier.files import digest
from verifier.machine import Machine
from verifier.result.verdict import Reason, Verdict

TERMS = Terms(config=load_config("auto"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Holds results of `done` and `failed`."""
    with opened(str(tmp_path / "out")) as opened_store:
        for found in (done(tmp_path), failed(tmp_path)):
            status = TERMS.job(found).status()
            result = status.conclude(Verdict.UNSAT) if found == done(tmp_path) else status.fail(ValueError("x"))
            opened_store.append(line_of(found, TERMS, Reply(result.as_json().encode(), 1.0)))
        yield opened_store


def done(tmp_path: Path) -> Instance:
    return instance(tmp_path / "family", "done")


def failed(tmp_path: Path) -> Instance:
    """Its files are not there."""
    return replace(done(tmp_path), network=str(tmp_path / "gone.onnx"), prop=str(tmp_path / "gone.vnnlib"))


def test_what_is_done_is_not_repeated(tmp_path: Path, store: Store) -> None:
    new = instance(tmp_path / "family", "new")
    asked = (done(tmp_path), new)
    assert unfinished(asked, TERMS, store) == Unfinished((new,))
    # Where it runs does not change what a result means.
    elsewhere = replace(TERMS, machine=Machine("cpu", 7), words=("--config", "auto"))
    assert unfinished(asked, elsewhere, store) == Unfinished((new,))


def test_errors_are_tried_again(tmp_path: Path, store: Store) -> None:
    """With another question too: an error answers none."""
    again = failed(tmp_path)
    key = again.key
    for terms in (TERMS, replace(TERMS, seed=3)):
        assert unfinished((again,), terms, store) == Unfinished((again,), (), (key,))


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.TIMEOUT])
def test_undecided_instances_are_not_tried_again(tmp_path: Path, store: Store, verdict: Verdict) -> None:
    asked = done(tmp_path)
    result = TERMS.job(asked).status().conclude(verdict, Reason.LIMIT)
    store.append(line_of(asked, TERMS, Reply(result.as_json().encode(), 1.0)))
    assert unfinished((asked,), TERMS, store) == Unfinished(())


@pytest.mark.parametrize("which", ["network", "prop"])
def test_changed_files_are_decided_again(tmp_path: Path, store: Store, which: str) -> None:
    asked = done(tmp_path)
    Path(getattr(asked, which)).write_text("retrained")
    assert unfinished([asked], TERMS, store) == Unfinished((asked,), (asked.key,))


def test_files_that_came_late_are_decided(tmp_path: Path, store: Store) -> None:
    asked = failed(tmp_path)
    Path(asked.network).write_text("here it is")
    assert unfinished([asked], TERMS, store).todo == (asked,)


def test_another_question_is_refused(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = done(tmp_path)
    for instances, terms, words in (
        (replace(asked, timeout=60.0), TERMS, "timeout 20 instead of 60"),
        (replace(asked, timeout=None), TERMS, "timeout 20 instead of none"),
        (asked, replace(TERMS, seed=3), "seed 0 instead of 3"),
        (asked, replace(TERMS, config=load_config("auto", ["search.batch=7"])), r"search\.batch \d+ instead of 7"),
    ):
        with pytest.raises(InputError, match=f"{words}; --fresh"):
            unfinished([instances], terms, store)
    monkeypatch.setattr("verifier.__version__", "99.0")
    with pytest.raises(InputError, match=r"version .* instead of 99\.0; --fresh"):
        unfinished([asked], TERMS, store)


# ---------------------------------------------------------------- proofs

PROVING = replace(TERMS, proofs="/proofs")


def proved(tmp_path: Path, store: Store) -> tuple[Instance, Path]:
    """An `unsat` with a proof that lies there."""
    asked, file = instance(tmp_path / "family", "proved"), tmp_path / "proof"
    file.write_bytes(b"a proof")
    proof = {"file": str(file), "bytes": 7, "sha256": digest(b"a proof"), "leaves": 1}
    result = replace(PROVING.job(asked).status().conclude(Verdict.UNSAT), proof=proof)
    store.append(line_of(asked, PROVING, Reply(result.as_json().encode(), 1.0)))
    return asked, file


def test_proofs_are_kept(tmp_path: Path, store: Store) -> None:
    asked, file = proved(tmp_path, store)
    for terms in (PROVING, replace(PROVING, proofs="/another")):
        assert unfinished([asked], terms, store) == Unfinished(())
    assert file.read_bytes() == b"a proof"


@pytest.mark.parametrize("data", [b"another proof", None])
def test_a_proof_that_is_gone_or_changed_is_written_again(tmp_path: Path, store: Store, data: bytes | None) -> None:
    asked, file = proved(tmp_path, store)
    file.unlink() if data is None else file.write_bytes(data)
    assert unfinished([asked], PROVING, store) == Unfinished((asked,), robbed=(asked.key,))


def test_results_with_and_without_proofs_do_not_stand_in_one_table(tmp_path: Path, store: Store) -> None:
    asked, _ = proved(tmp_path, store)
    with pytest.raises(InputError, match="proofs none instead of wanted"):
        unfinished([done(tmp_path)], PROVING, store)
    with pytest.raises(InputError, match="proofs wanted instead of none"):
        unfinished([asked], TERMS, store)
