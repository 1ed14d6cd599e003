"""Exact answers about small ReLU networks: mixed-integer programs, enumeration, the Planet LP.

Plain numpy and HiGHS. Nothing here comes from package `verifier`, so that the two can judge each other. A network is a
`Dag`: affine groups followed by ReLUs, and an affine output. All matrices are dense: made for a few hundred neurons.

Every question is the same: given a box and rows g(x) = A y(x) + B x - c, the minimum over the box of max_i g_i(x).
The unsafe set {g <= 0} is empty exactly when that minimum is positive.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import highspy
import numpy as np
from exact_network import Affine, Bounds, Box, Dag, Minimum, Rows, crown_bounds, interval_bounds

TOLERANCE = 1e-9  # feasibility and integrality tolerance of HiGHS
SAFETY = 1e-7  # added to bounds that come from an LP
AGREEMENT = 1e-5  # largest accepted gap between HiGHS's objective and the network at its point


class Program:
    """Columns and rows collected in lists, then handed to HiGHS in one piece."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.rows: list[tuple[np.ndarray, np.ndarray, float, float]] = []

    def columns(self, lower: np.ndarray, upper: np.ndarray, integer: bool = False) -> np.ndarray:
        start = len(self.lower)
        self.lower += [float(v) for v in lower]
        self.upper += [float(v) for v in upper]
        self.integer += [integer] * len(lower)
        return np.arange(start, len(self.lower))

    def row(self, terms: Sequence[tuple[np.ndarray, np.ndarray]], lower: float, upper: float) -> None:
        """lower <= sum of coefficient * column <= upper; `terms` are (columns, coefficients) with distinct columns."""
        index = np.concatenate([columns for columns, _ in terms])
        value = np.concatenate([np.asarray(coefficients, dtype=float) for _, coefficients in terms])
        keep = value != 0
        self.rows.append((index[keep], value[keep], lower, upper))

    def solver(self, cost: np.ndarray, seconds: float | None = None) -> highspy.Highs:
        """HiGHS with this program loaded, one thread, tight tolerances and no gap allowed."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.lower), len(self.rows)
        lp.col_cost_ = cost
        lp.col_lower_, lp.col_upper_ = np.array(self.lower), np.array(self.upper)
        lp.row_lower_ = np.array([row[2] for row in self.rows])
        lp.row_upper_ = np.array([row[3] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0] + [len(row[0]) for row in self.rows]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([row[0] for row in self.rows] or [np.zeros(0)]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([row[1] for row in self.rows] or [np.zeros(0)])
        if any(self.integer):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[flag] for flag in self.integer]
        highs = highspy.Highs()
        for name, setting in _options(seconds).items():
            highs.setOptionValue(name, setting)
        highs.passModel(lp)
        return highs


def _options(seconds: float | None) -> dict[str, bool | int | float]:
    options: dict[str, bool | int | float] = {"output_flag": False, "threads": 1, "random_seed": 0}
    options |= {"mip_rel_gap": 0.0, "mip_abs_gap": TOLERANCE, "mip_feasibility_tolerance": TOLERANCE}
    options |= {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    return options if seconds is None else options | {"time_limit": seconds}


def _infinite() -> float:
    return highspy.kHighsInf


def _add_group(
    program: Program, columns: list[np.ndarray], group: Affine, bounds: tuple[np.ndarray, np.ndarray], integer: bool
) -> None:
    """Appends a ReLU group in the big-M form; l_hat >= 0 means passing, u_hat <= 0 blocking."""
    l_hat, u_hat = bounds
    out = program.columns(np.maximum(l_hat, 0), np.maximum(u_hat, 0))
    ambiguous = (l_hat < 0) & (u_hat > 0)
    gate = np.full(len(l_hat), -1)
    gate[ambiguous] = program.columns(np.zeros(ambiguous.sum()), np.ones(ambiguous.sum()), integer)
    one = np.ones(1)
    for i, b in enumerate(group.bias):
        minus_x_hat = [(columns[j], -weight[i]) for j, weight in zip(group.sources, group.weights, strict=True)]
        x = (out[i : i + 1], one)
        passing = l_hat[i] >= 0
        program.row([x, *minus_x_hat], b, b if passing else _infinite())  # x >= x_hat, with equality if passing
        if ambiguous[i]:
            z = gate[i : i + 1]
            program.row([x, *minus_x_hat, (z, -l_hat[i] * one)], -_infinite(), b - l_hat[i])
            program.row([x, (z, -u_hat[i] * one)], -_infinite(), 0.0)
    columns.append(out)


def _encode(dag: Dag, box: Box, bounds: Bounds, integer: bool) -> tuple[Program, list[np.ndarray]]:
    program = Program()
    columns = [program.columns(*box)]
    for group, pair in zip(dag.groups, bounds, strict=True):
        _add_group(program, columns, group, pair, integer)
    return program, columns


def _add_rows(program: Program, columns: list[np.ndarray], dag: Dag, rows: Rows, cutoff: float) -> int:
    """Appends t >= g_i for every row, t <= cutoff; returns the column of t."""
    t = program.columns(np.array([-_infinite()]), np.array([cutoff]))
    slopes = {j: rows.A @ weight for j, weight in zip(dag.output.sources, dag.output.weights, strict=True)}
    if rows.B is not None:
        slopes[0] = slopes.get(0, 0.0) + rows.B
    constant = rows.A @ dag.output.bias - rows.c
    for i, value in enumerate(constant):
        terms = [(columns[j], -slope[i]) for j, slope in slopes.items()]
        program.row([(t, np.ones(1)), *terms], value, _infinite())
    return int(t[0])


def _run(
    program: Program, objective: int, seconds: float | None = None
) -> tuple[highspy.Highs, highspy.HighsModelStatus]:
    cost = np.zeros(len(program.lower))
    cost[objective] = 1.0
    highs = program.solver(cost, seconds)
    highs.run()
    return highs, highs.getModelStatus()


def milp_minimum(
    dag: Dag,
    box: Box,
    rows: Rows,
    *,
    bounds: Bounds | None = None,
    cutoff: float | None = None,
    seconds: float | None = None,
) -> Minimum:
    """Minimum over the box of max_i g_i by a mixed-integer program, one binary per ambiguous ReLU.

    Requires: `bounds`, if given, valid on the box (default: CROWN). Guarantees: without `cutoff` and `seconds`, value
    and lower agree up to the solver's tolerance. With `cutoff` the search only asks for points below it: if there
    are none the answer is (inf, cutoff, None).
    """
    bounds = crown_bounds(dag, box) if bounds is None else bounds
    program, columns = _encode(dag, box, bounds, integer=True)
    t = _add_rows(program, columns, dag, rows, _infinite() if cutoff is None else cutoff)
    highs, status = _run(program, t, seconds)
    kind = highspy.HighsModelStatus
    if status == kind.kInfeasible and cutoff is not None:
        return Minimum(np.inf, cutoff, None)
    if status not in (kind.kOptimal, kind.kTimeLimit):
        raise ArithmeticError(f"HiGHS ended with {status}")
    info, solution = highs.getInfo(), np.array(highs.getSolution().col_value)
    proved = info.mip_dual_bound if any(program.integer) else info.objective_function_value
    if info.primal_solution_status != 2:  # no feasible point within the time
        return Minimum(np.inf, proved, None)
    x = np.clip(solution[columns[0]], *box)
    value = float(rows.value(x, dag.forward(x)).max())
    if abs(value - info.objective_function_value) > AGREEMENT:
        raise ArithmeticError(f"HiGHS says {info.objective_function_value}, the network {value}")
    return Minimum(value, proved, x)


def planet_minimum(dag: Dag, box: Box, rows: Rows, bounds: Bounds) -> float:
    """Minimum of max_i g_i over the Planet relaxation with the given pre-activation bounds; inf if it is empty.

    Boxes are part of it: l <= x <= u after every ReLU, and x_hat <= 0 for a blocking one. So bounds that were cut by
    a split act as constraints. For valid bounds of the whole box they cost nothing but may tighten.
    """
    program, columns = _encode(dag, box, bounds, integer=False)
    highs, status = _run(program, _add_rows(program, columns, dag, rows, _infinite()))
    if status == highspy.HighsModelStatus.kInfeasible:
        return np.inf
    if status != highspy.HighsModelStatus.kOptimal:
        raise ArithmeticError(f"HiGHS ended with {status}")
    return float(highs.getInfo().objective_function_value)


def tightened_bounds(dag: Dag, box: Box) -> Bounds:
    """Two Planet LPs for every ambiguous neuron, group by group, starting from CROWN."""
    bounds = crown_bounds(dag, box)
    program, columns = Program(), []
    columns.append(program.columns(*box))
    for k, group in enumerate(dag.groups):
        l_hat, u_hat = (side.copy() for side in bounds[k])
        if k > 0:
            highs = program.solver(np.zeros(len(program.lower)))
            for i in np.flatnonzero((l_hat < 0) & (u_hat > 0)).tolist():
                l_hat[i] = max(l_hat[i], _extreme(highs, columns, group, i, 1.0) - SAFETY)
                u_hat[i] = min(u_hat[i], -_extreme(highs, columns, group, i, -1.0) + SAFETY)
        bounds[k] = (l_hat, u_hat)
        _add_group(program, columns, group, bounds[k], integer=False)
    return bounds


def _extreme(highs: highspy.Highs, columns: list[np.ndarray], group: Affine, i: int, sign: float) -> float:
    """Minimum of sign * x_hat_i over the program already loaded; -inf if HiGHS does not finish."""
    cost = np.zeros(highs.getNumCol())
    for j, weight in zip(group.sources, group.weights, strict=True):
        cost[columns[j]] += sign * weight[i]
    highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return -np.inf
    return float(highs.getInfo().objective_function_value) + sign * float(group.bias[i])


# ---------------------------------------------------------------- enumeration


def enumerated_minimum(dag: Dag, box: Box, rows: Rows, limit: int = 12) -> Minimum:
    """Minimum over the box of max_i g_i by one LP per activation pattern; at most `limit` ambiguous ReLUs."""
    bounds = interval_bounds(dag, box)
    best = Minimum(np.inf, np.inf, None)
    for pattern in _patterns(bounds, limit):
        program = Program()
        columns = program.columns(*box)
        slope, offset = _affine_piece(dag, pattern, program, columns)
        slope = rows.A @ slope + (0.0 if rows.B is None else rows.B)
        offset = rows.A @ offset - rows.c
        t = program.columns(np.array([-_infinite()]), np.array([_infinite()]))
        for i in range(len(offset)):
            program.row([(t, np.ones(1)), (columns, -slope[i])], offset[i], _infinite())
        highs, status = _run(program, int(t[0]))
        if status == highspy.HighsModelStatus.kInfeasible:
            continue
        if status != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"HiGHS ended with {status}")
        value = float(highs.getInfo().objective_function_value)
        if value < best.lower:
            x = np.clip(np.array(highs.getSolution().col_value)[columns], *box)
            best = Minimum(float(rows.value(x, dag.forward(x)).max()), value, x)
    return best


def _patterns(bounds: Bounds, limit: int) -> Iterator[list[np.ndarray]]:
    """All on/off choices of the ambiguous neurons; the others are fixed by their bounds."""
    ambiguous = [(l_hat < 0) & (u_hat > 0) for l_hat, u_hat in bounds]
    count = int(sum(mask.sum() for mask in ambiguous))
    if count > limit:
        raise ValueError(f"{count} ambiguous ReLUs, enumeration allows {limit}")
    for bits in itertools.product((False, True), repeat=count):
        free, pattern = iter(bits), []
        for mask, (l_hat, _) in zip(ambiguous, bounds, strict=True):
            fixed = l_hat >= 0
            pattern.append(np.array([next(free) if m else f for m, f in zip(mask, fixed, strict=True)], dtype=bool))
        yield pattern


def _affine_piece(
    dag: Dag, pattern: list[np.ndarray], program: Program, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Output as slope, offset on the piece where `pattern` holds; appends the piece's constraints."""
    pieces = [(np.eye(dag.n_in), np.zeros(dag.n_in))]
    for k, node in enumerate((*dag.groups, dag.output)):
        slope, offset = np.zeros((len(node.bias), dag.n_in)), node.bias.copy()
        for j, weight in zip(node.sources, node.weights, strict=True):
            slope, offset = slope + weight @ pieces[j][0], offset + weight @ pieces[j][1]
        if k == len(dag.groups):
            return slope, offset
        for i, on in enumerate(pattern[k]):
            low, high = (-offset[i], _infinite()) if on else (-_infinite(), -offset[i])
            program.row([(columns, slope[i])], low, high)
        pieces.append((slope * pattern[k][:, None], offset * pattern[k]))
    raise AssertionError("unreachable")
