"""HiGHS behind a narrow door: one program, many costs, rows that come and go.

HiGHS only proposes.  Whatever it reports, the value returned here is the Lagrangian at its row multipliers, which is
at most the minimum of the program for any multipliers; so a run that was cut short still gives a valid bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from verifier.bounding.core.base import Until
from verifier.bounding.lp.program import Floats, Program, Rows

_OPTIONS: dict[str, bool | float | str] = {
    "output_flag": False,
    "parallel": "off",
    "presolve": "off",  # with it the CIFAR networks take 1.5 to 1.8 times as long, and a deadline leaves no multipliers
    "small_matrix_value": 1e-12,  # its default drops weights below 1e-9
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


@dataclass(frozen=True, eq=False)
class Solution:
    """A lower bound of the minimum; the point where it is attained, if HiGHS finished; the multipliers behind it.

    If the program is infeasible the multipliers are a Farkas ray: the bound grows with its length.
    """

    lower: float
    point: Floats | None
    multipliers: Floats | None = None


class Solver:
    """Holds the program inside of HiGHS, so that the next solve starts from the last basis."""

    def __init__(self, program: Program) -> None:
        self._program = self._first = program
        self._first_basis: highspy.HighsBasis | None = None
        self._highs: Any = highspy.Highs()  # its stubs miss methods that it has
        for name, value in _OPTIONS.items():
            self._highs.setOptionValue(name, value)
        if not program.crossed:
            self._highs.passModel(highs_lp(program))

    def solve(self, cost: Floats, until: Until) -> Solution:
        """Minimise; +inf if the program is shown to be infeasible."""
        if self._program.crossed:
            return Solution(math.inf, None)
        if until.expired():
            return Solution(self._program.dual_value(cost, np.zeros(self._program.rows.count)), None)
        width = self._program.width
        self._highs.changeColsCost(width, np.arange(width, dtype=np.int32), cost)
        status = self._run(until)
        ray = self._refutation() if status == highspy.HighsModelStatus.kInfeasible else None
        if ray is not None:
            return Solution(math.inf, None, ray)
        found = self._highs.getSolution()
        y = np.asarray(found.row_dual) if found.dual_valid else np.zeros(self._program.rows.count)
        lower = self._program.dual_value(cost, y)
        finished = status == highspy.HighsModelStatus.kOptimal
        return Solution(lower, np.asarray(found.col_value) if finished else None, y)

    def become(self, program: Program) -> None:
        """Another program with the same rows and columns: HiGHS hears only of the numbers that differ.

        Its next solve starts from the last basis, which stays dual feasible while no value of a row changes.
        Require: neither program has an empty box.
        """
        self.forget_added_rows()
        before, self._program, self._first = self._program, program, program
        columns = np.flatnonzero((before.low != program.low) | (before.high != program.high)).astype(np.int32)
        self._highs.changeColsBounds(len(columns), columns, program.low[columns], program.high[columns])
        old, new = before.rows, program.rows
        rows = np.flatnonzero((old.low != new.low) | (old.high != new.high)).astype(np.int32)
        self._highs.changeRowsBounds(len(rows), rows, new.low[rows], new.high[rows])
        entries = np.flatnonzero(old.values != new.values)
        owners = np.searchsorted(new.indptr, entries, side="right") - 1
        for entry, row in zip(entries.tolist(), owners.tolist(), strict=True):
            self._highs.changeCoeff(row, int(new.columns[entry]), float(new.values[entry]))

    def add_rows(self, rows: Rows) -> None:
        """Cut the program further; the basis is kept, with the new rows in it."""
        if self._first_basis is None:
            self._first_basis = self._highs.getBasis()
        self._program = self._program.with_rows(rows)
        index = (rows.indptr[:-1].astype(np.int32), rows.columns.astype(np.int32))
        self._highs.addRows(rows.count, rows.low, rows.high, len(rows.values), *index, rows.values)

    def forget_added_rows(self) -> None:
        """Back to the program as it was given, and to its last basis."""
        if self._first_basis is None:
            return
        added = np.arange(self._first.rows.count, self._program.rows.count, dtype=np.int32)
        self._highs.deleteRows(len(added), added)
        self._highs.setBasis(self._first_basis)
        self._program, self._first_basis = self._first, None

    def _run(self, until: Until) -> highspy.HighsModelStatus:
        limit = self._highs.getRunTime() + until.clock.remaining()  # its clock runs on over all solves
        self._highs.setOptionValue("time_limit", max(0.0, limit))
        self._highs.run()
        status: highspy.HighsModelStatus = self._highs.getModelStatus()
        return status

    def _refutation(self) -> Floats | None:
        """A Farkas ray that, evaluated here, shows that nothing is feasible."""
        _, exists, ray = self._highs.getDualRay()
        if not exists:
            return None
        no_cost = np.zeros(self._program.width)
        for side in (1.0, -1.0):
            candidate: Floats = side * np.asarray(ray)
            if self._program.dual_value(no_cost, candidate) > 0:
                return candidate
        return None


def highs_lp(program: Program) -> highspy.HighsLp:
    """The program in the words of HiGHS; costs are given later."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = program.width, program.rows.count
    lp.col_cost_ = np.zeros(program.width)
    lp.col_lower_, lp.col_upper_ = program.low, program.high
    lp.row_lower_, lp.row_upper_ = program.rows.low, program.rows.high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.rows.indptr.astype(np.int32)
    lp.a_matrix_.index_ = program.rows.columns.astype(np.int32)
    lp.a_matrix_.value_ = program.rows.values
    return lp
