"""Averages against values computed by hand."""

from __future__ import annotations

from paper.complete import Run
from paper.ledger import Bounded, Peak
from paper.plan import ONE_CUT, PLANET
from paper.tables import bounds_table, by_method, common, complete_table, memory_table, roots_table, runs_table, shown


def bounded(method: str, problem: str, lower: float, seconds: float, network: str = "sgd") -> Bounded:
    return Bounded(network, problem, 0, method, lower, seconds)


LINES = [
    bounded(PLANET, "0", -4.0, 1.0),
    bounded(PLANET, "1", -8.0, 3.0),
    bounded(PLANET, "2", -100.0, 90.0),  # nobody else was asked
    bounded(ONE_CUT, "0", -3.0, 2.0),
    bounded(ONE_CUT, "1", -6.0, 6.0),
    bounded("Big-M", "0", -4.5, 0.25),
    bounded("Big-M", "1", -5.5, 0.75),
    bounded("Big-M", "0", -50.0, 0.75, network="madry"),
    bounded("other", "0", 9.0, 9.0),
]


def test_bounds_are_averaged_over_what_all_have_bounded() -> None:
    found = by_method(LINES, [PLANET, ONE_CUT, "Big-M", "not run"], "sgd")
    assert list(found) == [PLANET, ONE_CUT, "Big-M"]
    assert common(found) == [("sgd", "0", 0), ("sgd", "1", 0)]
    table = bounds_table("incomplete_sgd", "Title", found)
    assert table.rows == (
        (PLANET, -6.0, 2.0, 0.0, -1.5, 0.0),
        (ONE_CUT, -4.5, 4.0, 1.5, 0.0, None),
        ("Big-M", -5.0, 0.5, 1.0, -0.5, 50.0),
    )
    assert "2 rows" in table.note
    assert "| Big-M | -5.0000 | 0.5000 | 1.0000 | -0.5000 | 50.00 |" in table.markdown().splitlines()


def test_without_a_yardstick_nothing_is_compared_with_it() -> None:
    found = by_method(LINES, ["Big-M"], "sgd")
    assert bounds_table("incomplete_sgd", "Title", found).rows == (("Big-M", -5.0, 0.5, None, None, None),)


def test_times_of_what_is_not_solved_count_as_the_limit() -> None:
    runs = {
        "Big-M": {"3": Run("3", "unsat", 10.0, 100), "8": Run("8", "timeout", 300.4, 5000)},
        "MIP A_k": {"3": Run("3", "unknown", 50.0, 7, claimed="unsat"), "8": Run("8", "unknown", 20.0, 9)},
        "half": {"3": Run("3", "unsat", 1.0, 1)},
    }
    table = complete_table("base", {k: runs[k] for k in ("Big-M", "MIP A_k")}, ["3", "8"], 300.0)
    assert table.rows == (
        ("Big-M", 155.0, 2550.0, 50.0, 100.0, 826.60, 68582.00, 19),
        ("MIP A_k", 175.0, 8.0, 50.0, 7.0, 3227.50, 226.24, 82),
    )
    assert "1 were solved by all" in table.note
    assert [row[0] for row in complete_table("base", runs, ["3", "8"], 300.0).rows] == ["Big-M", "MIP A_k"]


def test_a_run_that_overran_its_limit_took_the_limit() -> None:
    table = complete_table("deep", {"ours": {"1": Run("1", "unsat", 8.4, 3)}}, ["1"], 8.0)
    assert table.rows == (("ours", 8.0, 3.0, 0.0, 3.0, None, None, None),)


def test_csv_holds_full_digits_and_blanks() -> None:
    table = complete_table("deep", {"ours": {"1": Run("1", "unsat", 1 / 3, None)}}, ["1"], 8.0)
    assert table.csv().splitlines()[1] == f"ours,{1 / 3},,0.0,,,,"


def test_single_properties_stand_beside_each_other() -> None:
    lines = [
        bounded("Big-M", "1", -1.5, 2.0, "deep"),
        bounded("Big-M", "0", -3.5, 1.0, "base"),
        bounded("CROWN", "0", -5.0, 0.0, "base"),
        *LINES,
    ]
    table = roots_table(lines, ["base", "wide", "deep"], ["CROWN", "Big-M", "not run"])
    assert table.header == ("method", "base 0", "CPU s", "deep 1", "CPU s")
    assert table.rows == (("CROWN", -5.0, 0.0, None, None), ("Big-M", -3.5, 1.0, -1.5, 2.0))


def test_all_runs_are_listed() -> None:
    table = runs_table({"base": {"MIP": {"3": Run("3", "unknown", 5.0, 7, "unsat")}}})
    assert table.rows == (("base", "MIP", "3", "claimed unsat", 5.0, 7),)


def test_memory_is_that_of_one_width() -> None:
    peaks = [Peak("Big-M", "10 iterations", 1000, 6.0), Peak("Big-M", "10 iterations", 7000, 60.0)]
    assert memory_table(peaks, 7000).rows == (("Big-M", "10 iterations", 60.0),)


def test_numbers_are_shown_with_the_digits_that_say_something() -> None:
    assert [shown(v) for v in (None, "x", 3, -0.12345, 123.456, 68582.0)] == [
        "-",
        "x",
        "3",
        "-0.1235",
        "123.46",
        "68582",
    ]
