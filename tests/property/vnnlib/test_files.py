"""The public benchmark properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from property.oracles import assert_same

from verifier.files import read_stored, unpacked
from verifier.property.vnnlib import load_property
from verifier.property.vnnlib.fast import parse_fast
from verifier.property.vnnlib.general import parse_general


def names(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.vnnlib*"))


@pytest.mark.slow
def test_every_file_loads(benchmarks: Path) -> None:
    files = sorted(benchmarks.glob("*/vnnlib/*.vnnlib*"))
    assert files
    for path in files:
        prop = load_property(path)
        assert prop.clauses, path
        assert prop.warnings == ()
        assert (prop.boxes.lower <= prop.boxes.upper).all()


def test_one_file_of_each_family_is_read_alike_by_both_readers(benchmarks: Path) -> None:
    folders = [folder for folder in sorted(benchmarks.glob("*/vnnlib")) if folder.parent.name != "vnnlib2_samples"]
    smallest = [min(names(folder), key=lambda path: path.stat().st_size) for folder in folders]
    quick = [path for path in smallest if path.stat().st_size < 10_000]  # the general reader takes its time
    assert len(quick) > 10
    for path in quick:
        data = unpacked(read_stored(path), path)
        found = parse_fast(data)
        assert found is not None, path
        assert_same(found, parse_general(data.decode()))


def test_version_2_says_the_same_as_version_1(benchmarks: Path) -> None:
    pairs = 0
    for path in names(benchmarks / "vnnlib2_samples" / "vnnlib"):
        older = benchmarks / "acasxu" / "vnnlib" / path.name.removeprefix("acasxu_")
        if path.name.startswith("acasxu_") and older.exists():
            new = load_property(path)
            assert_same(new, load_property(older))
            assert new.variables is not None
            assert [v.shape for v in new.variables] == [(1, 1, 1, 5), (1, 5)]
            pairs += 1
    assert pairs == 9


def test_acasxu_property_6(benchmarks: Path) -> None:
    prop = load_property(benchmarks / "acasxu" / "vnnlib" / "prop_6.vnnlib.gz")
    assert len(prop.boxes) == 2
    assert [clause.box for clause in prop.clauses] == [0] * 4 + [1] * 4
    assert prop.boxes.upper[:, 1] == pytest.approx([0.499999896, -0.11140846], rel=1e-15)
    assert [clause.rows.A.tolist() for clause in prop.clauses[:2]] == [[[-1, 1, 0, 0, 0]], [[-1, 0, 1, 0, 0]]]
