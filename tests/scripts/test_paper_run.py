"""The paper's experiments in miniature: everything is run once, kept, shown, and not run again."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from paper import command, figures
from paper.bounding import Cell, Clauses, missing
from paper.command import main
from paper.data import DataFolder
from paper.ledger import Bounded, Ledger, Peak, Root
from paper.plan import (
    COMPLETE,
    FULL,
    LISTED,
    PICTURED,
    PUBLISHED,
    QUICK,
    Iterations,
    Method,
    Scale,
    Tuning,
    ablations,
    bounders,
)
from paper.run import Errand, Runner
from paper.work import Work, quantiles
from paper_data import write

from verifier import verify
from verifier.batch.instances import read_instances
from verifier.batch.jobs import Reply, Terms, line_of
from verifier.batch.store import opened
from verifier.config import load_config, presets

MINI = Scale(
    images=1,
    ablated=1,
    properties=2,
    seconds=20.0,
    width=20,
    masks=2,
    iterations=Iterations(
        bdd=4,
        big_m=20,
        initial=10,
        active_set=(4, 8, 12),
        saddle_point=(2, 6),
        as_sp=(4, 3),
        every=4,
        sweep=(3,),
        budgets=(8,),
        longer=(16,),
        ours=(5, 5),
    ),
    pictured=PICTURED[:1],
    listed=LISTED[:1],
    presets=tuple(preset for preset in COMPLETE if preset.folder in ("paper-big_m", "auto")),
)


FIGURES = ("violins_sgd", "pointwise_sgd", "violins_ablations", "cactus_base", "memory")
SAVE = figures.save


def words_after(words: Sequence[str], name: str) -> list[str]:
    return [b for a, b in pairwise(words) if a == name]


class Here:
    """Runs commands in this process, which is quicker than starting one for each; counts them."""

    def __init__(self) -> None:
        self.started: list[Sequence[str]] = []

    def __call__(self, words: Sequence[str]) -> int:
        self.started.append(words)
        return self._batch(words) if "batch" in words else main("", words[2:])

    def _batch(self, words: Sequence[str]) -> int:
        [out], [name], [limit] = (words_after(words, option) for option in ("--out", "--config", "--timeout"))
        config = load_config(name, words_after(words, "--set"))
        assert not config.falsify.enabled
        with opened(out) as store:
            for instance in read_instances([words[words.index("batch") + 1]], float(limit)):
                found = verify(instance.network, instance.prop, config=config, timeout=float(limit), threads=1)
                store.append(line_of(instance, Terms(), Reply(found.as_json().encode(), 0.5)))
        return 0


def undrawn(figure: object, folder: Path, name: str) -> list[str]:
    """Drawing takes most of the time."""
    return [f"{name}.svg"]


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "QUICK", MINI)
        patch.setattr(figures, "save", undrawn)
        yield patch


@pytest.fixture(scope="module")
def data(patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(write(tmp_path_factory.mktemp("paper") / "data"))


@pytest.fixture
def miniature(data: DataFolder, tmp_path: Path) -> Work:
    """Nothing has been run."""
    return Work(data, tmp_path / "out", MINI)


@pytest.fixture(scope="module")
def started() -> Here:
    return Here()


@pytest.fixture(scope="module")
def finished(data: DataFolder, started: Here, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Everything has been run once."""
    mini = Work(data, tmp_path_factory.mktemp("paper") / "out", MINI)
    assert main("", arguments(mini), started) == 0
    return mini


def arguments(mini: Work, *more: str) -> list[str]:
    return [str(mini.data.path), "--out", str(mini.out), "--quick", "--jobs", "1", *more]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_everything_is_run_once(finished: Work, started: Here) -> None:
    kinds = [words[words.index("--cell") + 1] if "--cell" in words else "batch" for words in started.started]
    assert [kinds.count(kind) for kind in ("root", "bound", "batch", "memory")] == [2, 2, 2, 9]
    again = Here()
    assert main("", arguments(finished), again) == 0
    assert again.started == []


def test_everything_is_shown(finished: Work) -> None:
    tables = finished.out / "tables"
    for network in MINI.listed:
        found = rows_of(tables / f"complete_{network.name}.csv")
        assert [row["method"] for row in found] == ["Big-M", "ours"]
        assert all(row["% time-outs"] == "0.0" for row in found)
    absent = set(finished.missing_methods)
    for pictured in MINI.pictured:
        methods = [name for m in bounders(pictured.tuning, MINI.iterations) for name in (*m.stages, m.name)]
        found = rows_of(tables / f"incomplete_{pictured.name}.csv")
        assert {row["method"] for row in found} == {*methods} - absent
        assert all(row["mean bound"] for row in found)
    report = (finished.out / "report.md").read_text()
    assert all(f"(figures/{name}.svg)" in report for name in FIGURES)


@pytest.mark.slow
def test_figures_are_drawn(finished: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", SAVE)
    assert main("", arguments(finished, "--only")) == 0
    for name in FIGURES:
        assert all((finished.out / "figures" / f"{name}.{kind}").stat().st_size > 1000 for kind in ("svg", "png"))


def test_a_figure_is_drawn_in_both_formats(tmp_path: Path) -> None:
    bars = figures.memory_bars([Peak("Big-M", "10 iterations", 20, 6.0)], "Title")
    assert SAVE(bars, tmp_path, "memory") == ["memory.svg", "memory.png"]
    assert "Big-M, 10 iterations" in (tmp_path / "memory.svg").read_text()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_bounds_are_in_the_right_order(finished: Work) -> None:
    """All that climb over M stay below its optimum; cuts only help; alpha-CROWN starts at CROWN."""
    lower = {(line.place, line.method): line.lower for line in finished.bounds()}
    places = {place for place, _ in lower}
    assert len(places) >= 2
    for place in places:
        planet = lower[place, "LP Planet"]
        assert lower[place, "LP 1 cut"] >= planet - 1e-7
        for method in ("Wong-Kolter", "CROWN", "Big-M", "ours: alpha-CROWN"):
            assert lower[place, method] <= planet + 1e-5
        assert lower[place, "ours: alpha-CROWN"] >= lower[place, "CROWN"] - 1e-5


def test_only_what_is_lost_is_computed_again(finished: Work, tmp_path: Path) -> None:
    mini = replace(finished, out=tmp_path / "out")
    shutil.copytree(finished.out, mini.out)
    path = mini.out / "bounds.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:20])  # as a killed process leaves it
    here = Here()
    assert main("", arguments(mini), here) == 0
    lost = json.loads(lines[-1])
    assert [tuple(words[-2:]) for words in here.started] == [(lost["network"], lost["problem"])]
    now = path.read_text().splitlines()
    assert len(now) == len(lines) + 1  # the torn one stays
    assert now[: len(lines) - 1] == "".join(lines[:-1]).splitlines()
    assert json.loads(now[-1])["lower"] == pytest.approx(lost["lower"], abs=1e-6)


def test_a_stage_is_the_shorter_run(miniature: Work) -> None:
    miniature.write()
    clauses = Clauses.load(miniature.network("sgd"), miniature.file("sgd", "0"), "paper")
    options = {"initial": {"iterations": 5, "start": "zero"}}
    long = Method("long", "saddle_point", {"iterations": 30, **options}, {"short": 18, "shorter": 28})
    found = {name: lower for name, lower, _ in clauses.bounded(0, long)}
    for name, count in (("short", 12), ("shorter", 2)):
        alone = Method(name, "saddle_point", {"iterations": count, **options})
        [(_, lower, _)] = clauses.bounded(0, alone)
        assert found[name] == pytest.approx(lower, abs=1e-5)
    assert found["shorter"] <= found["short"] <= found["long"] + 1e-6


def test_a_method_that_is_not_there_is_named_and_passed_over(miniature: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Method("good", "crown")
    bad = Method("no name", "nobody")
    odd = Method("no option", "big_m", {"nothing": 3})
    assert set(missing([good, bad, odd])) == {"no name", "no option"}
    monkeypatch.setattr(command, "QUICK", replace(MINI, presets=(replace(COMPLETE[1], config="paper/none"),)))
    assert main("", arguments(miniature, "--only"), Here()) == 0
    assert "- the preset paper/none (Big-M)" in (miniature.out / "report.md").read_text()


def test_a_failure_is_told_and_the_rest_goes_on(miniature: Work, capsys: pytest.CaptureFixture[str]) -> None:
    def start(words: Sequence[str]) -> int:
        return 3 if "base" in words else main("", words[2:])

    assert main("", arguments(miniature, "--only", "roots"), start) == 1
    assert {line.network for line in miniature.roots()} == {"sgd"}
    assert "a run that failed: roots: base" in (miniature.out / "report.md").read_text()
    assert "base, failed (3)" in capsys.readouterr().err


def test_errands_all_run_also_beside_each_other() -> None:
    seen: list[str] = []
    runner = Runner(3, lambda words: seen.append(words[0]) or int(words[0] == "2"))  # type: ignore[func-returns-value]
    runner.run("stage", [Errand(str(k), (str(k),)) for k in range(7)])
    assert sorted(seen) == list("0123456")
    assert runner.failed == ["stage: 2"]


def test_a_method_with_other_options_is_another_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "bounds.jsonl", Bounded)
    cell = Cell("sgd", "0", 4, (Method("A", "big_m", {"iterations": 5}, {"B": 2}),))
    ledger.add(Bounded("sgd", "0", 4, "A", -1.0, 0.5, {"iterations": 5}))
    assert cell.left(ledger.lines) == cell.methods  # its stage is missing
    ledger.add(Bounded("sgd", "0", 4, "B", -1.5, 0.5, {"iterations": 5}))
    again = Ledger(tmp_path / "bounds.jsonl", Bounded)
    assert list(again) == list(ledger)
    assert cell.left(again.lines) == ()
    changed = replace(cell, methods=(replace(cell.methods[0], options={"iterations": 6}),))
    assert changed.left(again.lines) == changed.methods
    assert replace(cell, clause=3).left(again.lines) == cell.methods


def test_problems_are_spread_over_the_root_gaps(miniature: Work) -> None:
    roots = Ledger(miniature.out / "roots.jsonl", Root)
    for problem, lower in (("0", -3.0), ("1", -1.0), ("2", -2.0)):
        roots.add(Root("base", problem, (lower,)))
    assert miniature.chosen(LISTED[0], roots) == ["1", "0"]
    named = replace(LISTED[0], decided=("2",))
    few = replace(miniature, scale=replace(MINI, listed=(named,)))
    assert few.chosen(named, roots) == ["2"]
    assert few.problems("base") == ["0", "2"]
    assert quantiles("abcdefgh", 4) == ["b", "d", "f", "h"]
    assert quantiles("abc", 12) == ["a", "b", "c"]


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_without_data_there_is_a_sentence(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("", [folder]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "the paper's data" in said


def test_every_row_of_complete_verification_is_a_preset_with_a_folder_of_its_own() -> None:
    assert len({preset.folder for preset in COMPLETE}) == len(COMPLETE)
    assert {preset.config for preset in COMPLETE} <= {*presets()}
    assert {*PUBLISHED} <= {preset.name for preset in COMPLETE}


@pytest.mark.parametrize("scale", [FULL, QUICK, MINI])
def test_names_of_methods_are_unique_and_all_can_be_built(scale: Scale) -> None:
    found = (*bounders(Tuning(), scale.iterations), *ablations(Tuning(), scale.iterations))
    options = {(method.name, str(method.options)) for method in found}
    assert len({name for name, _ in options}) == len(options)
    assert missing(found) == {}
