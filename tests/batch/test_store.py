"""The result folder: nothing is lost, nothing stands there twice."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from batch.fakes import instance

from verifier.batch.jobs import Reply, Terms, line_of
from verifier.batch.records import parse, read_records
from verifier.batch.store import opened
from verifier.errors import InputError
from verifier.result.verdict import Reason, Verdict


def line(folder: Path, name: str, verdict: Verdict = Verdict.UNSAT, seconds: float = 1.25) -> bytes:
    found = instance(folder / "family", name)
    status = Terms().job(found).status()
    result = status.conclude(verdict, None if verdict.decided else Reason.LIMIT, "no luck")
    return line_of(found, Terms(), Reply(result.as_json().encode(), seconds, 0.5))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """What a full disk does to a file, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_is_the_json_of_a_run_and_what_the_batch_knows(tmp_path: Path) -> None:
    data = json.loads(line(tmp_path, "a"))
    plain = json.loads(Terms().job(instance(tmp_path / "family", "a")).status().conclude(Verdict.UNSAT).as_json())
    added = {"category", "onnx", "vnnlib", "command", "proof_wanted", "prepare_time", "run_time"}
    assert set(data) - set(plain) == added
    assert (data["category"], data["onnx"], data["vnnlib"]) == ("family", "onnx/net.onnx", "a.vnnlib")
    assert (data["prepare_time"], data["run_time"], data["timeout"]) == (0.5, 1.25, 20)
    assert data["command"][:5] == ["verify", data["network"], data["property"], "--timeout", "20"]
    assert len(data["network_sha256"]) == len(data["property_sha256"]) == 64


def test_appended_lines_are_there_again(tmp_path: Path) -> None:
    with opened(str(tmp_path / "new" / "out")) as store:
        written = [store.append(line(tmp_path, name)) for name in "abc"]
        (tmp_path / "new" / "out" / "checks.jsonl").write_text("about their proofs")
        assert (tmp_path / "new" / "out" / "results.jsonl").read_bytes().count(b"\n") == 3
    with opened(str(tmp_path / "new" / "out")) as store:
        assert list(store.records.values()) == written
    with opened(str(tmp_path / "new" / "out"), fresh=True) as store:
        assert store.records == {}
        assert not store.path.exists()
        assert not (tmp_path / "new" / "out" / "checks.jsonl").exists()


def test_wherever_a_line_is_torn_the_others_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = line(tmp_path, "a"), line(tmp_path, "b")
    path = tmp_path / "results.jsonl"
    for cut in (0, 1, 2, 11, *range(100, len(second), 97), len(second) - 1, len(second)):
        path.write_bytes(first + b"\n" + second[:cut])
        caplog.clear()
        with opened(str(tmp_path)) as store:
            names = [record.vnnlib for record in store.records.values()]
            assert names == (["a.vnnlib", "b.vnnlib"] if cut == len(second) else ["a.vnnlib"])
        assert len(read_records(path)) == len(names)
        assert path.read_bytes().endswith(b"\n")
        assert bool(caplog.records) == (0 < cut < len(second))


def test_zeros_that_a_power_cut_left_go_away(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    whole = line(tmp_path, "a") + b"\n"
    path.write_bytes(whole + b"\0" * 100)
    with opened(str(tmp_path)) as store:
        assert len(store.records) == 1
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("bad", "last"), [(b"{}", True), (b'{"verdict": "sat"}', True), (b"[1]", True), (b"{}", False), (b'{"verd', False)]
)
def test_what_no_batch_has_written_is_refused(tmp_path: Path, bad: bytes, last: bool) -> None:
    path = tmp_path / "results.jsonl"
    before = line(tmp_path, "a") + b"\n" + bad + b"\n" + (b"" if last else line(tmp_path, "b") + b"\n")
    path.write_bytes(before)
    with pytest.raises(InputError, match=r"results\.jsonl:2: "), opened(str(tmp_path)):
        pass
    assert path.read_bytes() == before


def test_a_file_that_takes_no_more_stays_whole(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as store:
        store.append(line(tmp_path, "a"))
        full = line(tmp_path, "b")
        size = store.path.stat().st_size
        with file_size_limit(size + len(full) // 2):
            with pytest.raises(InputError, match="what is done is kept"):
                store.append(full)
            assert store.path.stat().st_size == size
            assert len(store.records) == 1
        store.append(full)
    assert [record.vnnlib for record in read_records(store.path)] == ["a.vnnlib", "b.vnnlib"]


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as store:
        store.append(line(tmp_path, "a"))
        store.write_table()
        before = (tmp_path / "results.csv").read_text()
        store.append(line(tmp_path, "b"))
        with file_size_limit(len(before) + 3), pytest.raises(InputError, match=r"results\.csv: cannot be written"):
            store.write_table()
        assert (tmp_path / "results.csv").read_text() == before
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".") and name != ".lock"]


def test_forgotten_results_are_out_of_the_file(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as store:
        a, b, c = (store.append(line(tmp_path, name)) for name in "abc")
        store.forget([b.key])
        assert list(store.records) == [a.key, c.key]
        assert read_records(store.path) == [a, c]
        store.forget()
        assert store.path.read_bytes() == b""


def test_the_table_has_the_columns_of_vnn_comp(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as store:
        a, b = store.append(line(tmp_path, "a")), store.append(line(tmp_path, "b,x", Verdict.UNKNOWN, 0.0004))
        store.write_table([b.key, a.key, ("nowhere", ("", ""))])
    assert (tmp_path / "results.csv").read_text().splitlines() == [
        'family,onnx/net.onnx,"b,x.vnnlib",0.500,unknown,0.000',
        "family,onnx/net.onnx,a.vnnlib,0.500,unsat,1.250",
    ]


def test_one_batch_per_folder(tmp_path: Path) -> None:
    with opened(str(tmp_path)):
        second = opened(str(tmp_path))
        with pytest.raises(InputError, match=rf"process {os.getpid()}\) is at work"):
            second.__enter__()
    with opened(str(tmp_path)):
        pass


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"), opened(str(tmp_path / "file")):
        pass


def test_par_2(tmp_path: Path) -> None:
    def of(**changes: Any) -> float:
        record = parse(json.dumps(json.loads(line(tmp_path, "a")) | {"run_time": 3.0} | changes))
        assert record is not None
        return record.par2

    assert (of(), of(verdict="sat"), of(verdict="timeout"), of(verdict="error")) == (3.0, 3.0, 40.0, 40.0)
    assert of(verdict="unknown", timeout=None) == 6.0
