"""Search traces: what a tree looks like, and files that are no traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted import script

from verifier.errors import InputError

draw_tree, read_trace = script("draw_tree").draw_tree, script("draw_tree").read_trace


def line(number: int, parent: int | None, splits: int, bound: float | None, **rest: Any) -> str:
    row = {"id": number, "parent": parent, "clause": 0, "split": [[1, i, 1] for i in range(splits)], "bound": bound}
    return json.dumps({**row, "closed": False, "tier": "alpha_crown", "time": 0.0, **rest})


TREE = [
    line(0, None, 0, -3.0, time=0.5),
    line(1, 0, 1, -2.0, time=1.0),
    line(2, 0, 1, -1.0, time=1.0),
    line(3, 1, 2, 0.5, time=2.0, closed=True, tier="propagated"),
    line(4, 1, 2, -0.25, time=2.0, tier="propagated"),
    line(5, 2, 1, None, time=3.0, closed=True),
]


def written(folder: Path, lines: list[str]) -> str:
    path = folder / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_depths_count_all_splits_on_the_way(tmp_path: Path) -> None:
    tree = read_trace(written(tmp_path, TREE))
    assert tree.by_depth() == {"alpha_crown": {0: 1, 1: 2, 2: 1}, "propagated": {3: 2}}
    assert tree.over_time()["propagated"] == [(2.0, 1), (2.0, 2)]


def test_the_global_bound_is_the_worst_of_what_is_open(tmp_path: Path) -> None:
    tree = read_trace(written(tmp_path, TREE))
    assert tree.rise == ((0.5, -3.0), (1.0, -2.0), (2.0, -1.0), (3.0, -0.25))


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    torn = written(tmp_path, [*TREE, TREE[0][:20]])
    assert len(read_trace(torn).nodes) == len(TREE)


@pytest.mark.parametrize(("lines", "at"), [(["no json", TREE[0]], 1), ([TREE[0], "[]", TREE[1]], 2), ([""], 1)])
def test_other_files_are_refused(tmp_path: Path, lines: list[str], at: int | None) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(written(tmp_path, lines))
    assert caught.value.line == at


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "tree.svg"
    draw_tree(read_trace(written(tmp_path, TREE)), str(path), "a title")
    text = path.read_text()
    assert "<svg" in text
    assert len(text) > 5000
