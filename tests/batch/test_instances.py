"""Lists of instances and of known verdicts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from batch.fakes import benchmark

from verifier.batch.instances import Instance, read_expected, read_instances, select
from verifier.errors import InputError
from verifier.result.verdict import Verdict


def test_a_list_gives_names_as_written_and_resolved_paths(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "family", "a", "b", timeout=1.5)
    first, second = read_instances([str(folder)])
    root = folder.resolve()
    paths = (str(root / "onnx" / "net.onnx"), str(root / "a.vnnlib"))
    assert first == Instance("family", "onnx/net.onnx", "a.vnnlib", *paths, timeout=1.5)
    assert second.vnnlib == "b.vnnlib"
    assert read_instances([str(folder / "instances.csv")]) == (first, second)


def test_a_compressed_file_stands_in_for_one_that_is_missing(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "family", "a", "both")
    (folder / "a.vnnlib").rename(folder / "a.vnnlib.gz")
    (folder / "both.vnnlib.gz").write_bytes(gzip.compress(b""))
    first, second = read_instances([str(folder)])
    assert (first.vnnlib, first.prop) == ("a.vnnlib", str(folder.resolve() / "a.vnnlib.gz"))
    assert second.prop == str(folder.resolve() / "both.vnnlib")


def test_an_instance_that_is_listed_twice_is_decided_once(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "family", "a")
    (folder / "instances.csv").write_text("onnx/net.onnx,a.vnnlib,3\nonnx/../onnx/net.onnx,./a.vnnlib,9\n")
    (found,) = read_instances([str(folder), str(folder / "instances.csv")])
    assert (found.onnx, found.timeout) == ("onnx/net.onnx", 3.0)


def test_the_same_files_in_two_families_are_two_instances(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "family", "a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "instances.csv").write_text("../family/onnx/net.onnx,../family/a.vnnlib,3\n")
    assert [i.category for i in read_instances([str(folder), str(other)])] == ["family", "other"]


def test_folders_of_a_version_belong_to_the_family_above(tmp_path: Path) -> None:
    (found,) = read_instances([str(benchmark(tmp_path / "family" / "1.0", "a"))])
    assert found.category == "family"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("onnx,vnnlib,timeout\nn,p,3\n", [3.0]),
        ("\n n , p , 3 \n\n", [3.0]),
        ("\ufeffn,p,3\r\nn,q,4\r\n", [3.0, 4.0]),
        ("n,p\nn,q,\nn,r,inf\n", [None, None, None]),
        ("\"[('f','n')]\",p,2\n", [2.0]),
    ],
    ids=["heading", "blanks", "Windows", "no limit", "quoted"],
)
def test_forms_of_lists(tmp_path: Path, text: str, limits: list[float | None]) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert [i.timeout for i in read_instances([str(path)])] == limits
    assert {i.timeout for i in read_instances([str(path)], timeout=7)} == {7}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n,p,3\nn\n", ":2: "),
        ("n,,3\n", ":1: "),
        ("n,p,soon\n", "'soon'"),
        ("n,p,-1\n", "'-1'"),
        ("n,p,nan\n", "'nan'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_instances([str(path)])


def test_what_is_no_list(tmp_path: Path) -> None:
    benchmark(tmp_path / "top" / "below", "a")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    for source, words in {"top": "one in below", "missing.csv": "No such file", "binary.csv": "not a csv"}.items():
        with pytest.raises(InputError, match=words):
            read_instances([str(tmp_path / source)])


def test_selection_is_by_path_or_by_file_name() -> None:
    def make(onnx: str, vnnlib: str) -> Instance:
        return Instance("c", onnx, vnnlib, onnx, vnnlib)

    instances = (make("onnx/a.onnx", "v/p1.vnnlib"), make("onnx/b.onnx", "v/p1.vnnlib"), make("onnx/a.onnx", "v/q.gz"))
    chosen = {pattern: select(instances, pattern) for pattern in ("p1*", "onnx/a*", "*", "a", "v/q.gz")}
    assert chosen == {
        "p1*": instances[:2],
        "onnx/a*": (instances[0], instances[2]),
        "*": instances,
        "a": (),
        "v/q.gz": instances[2:],
    }
    assert select(instances, "onnx/a*", 1) == instances[:1]
    assert select(instances, None, 2) == instances[:2]


def test_known_verdicts_are_found_from_wherever_their_list_lies(tmp_path: Path) -> None:
    folder = benchmark(tmp_path / "family", "a", "b", "c")
    lists = tmp_path / "lists"
    lists.mkdir()
    text = "note,vnnlib,onnx,expected\n"
    for name, verdict in {"a": "sat", "b": "unsat", "c": "unknown"}.items():
        text += f"x,../family/{name}.vnnlib,../family/onnx/net.onnx,{verdict}\n"
    (lists / "expected.csv").write_text(text)
    a, b, _ = read_instances([str(folder)])
    assert read_expected([str(lists / "expected.csv")]) == {a.files: Verdict.SAT, b.files: Verdict.UNSAT}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n,p,sat\n", "columns"),
        ("onnx,vnnlib,expected\nn,p\n", ":2: .*few"),
        ("onnx,vnnlib,expected\nn,p,safe\n", "'safe'"),
        ("onnx,vnnlib,expected\nn,p,sat\nn,p,unsat\n", ":3: .*opposite"),
    ],
)
def test_bad_lists_of_known_verdicts(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "expected.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_expected([str(path)])
