"""The script behind the table of incomplete verification: which rows it takes, and what it keeps."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import scripted


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripted.script("incomplete")


def test_the_first_rows_are_spread_over_images_and_rows(script: ModuleType) -> None:
    rows = script.spread(20)
    assert sorted(number for number, _ in rows) == list(range(20))
    first = rows[:6]
    assert max(number for number, _ in first) >= 15
    assert len({r.start for _, r in first}) >= 4
    every = rows + list(script.further(20))
    assert sorted((number, r.start) for number, r in every) == [(i, r) for i in range(20) for r in range(9)]


def test_a_run_that_is_started_again_skips_what_is_known(script: ModuleType, tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    class Image:
        def bound(self, name: str, rows: range) -> list[Any]:
            calls.append((name, rows.start))
            return [script.Entry(name, 3, r, len(rows), -1.5, 0.25) for r in rows]

    class Images:
        def at(self, number: int) -> Image:
            return Image()

    path = tmp_path / "results.jsonl"
    for _ in range(2):
        results = script.Results(path)
        results.fill(Images(), "CROWN", 3, range(9))
        results.fill(Images(), "CROWN", 3, range(4, 5))  # alone, so its time is another
    assert calls == [("CROWN", 0), ("CROWN", 4)]
    again = script.Results(path)
    assert sorted(again.of("CROWN", 9)) == [(3, r) for r in range(9)]
    assert again.of("CROWN", 1)[3, 4] == script.Entry("CROWN", 3, 4, 1, -1.5, 0.25)
    assert again.spent(["CROWN"]) == 10 * 0.25
