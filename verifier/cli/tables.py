"""Lower bounds as tables of text, for `verify bounds`."""

from __future__ import annotations

from collections.abc import Sequence

from verifier.result.lower_bounds import LowerBounds
from verifier.result.verdict import Reason

MOST = 40
"""Clauses in a table, unless all are asked for."""

_ENDED = {
    Reason.TIMEOUT: "the time limit was reached",
    Reason.INTERRUPTED: "the run was interrupted",
    Reason.MEMORY: "the memory did not suffice",
}


def table_lines(found: Sequence[LowerBounds], whole: bool) -> list[str]:
    """One method: its clauses.  Several: one line for each of them.  The last line is a summary."""
    return _clauses(found[0], whole) if len(found) == 1 else _methods(found)


def _clauses(found: LowerBounds, whole: bool) -> list[str]:
    best = found.best_per_clause
    shown = list(range(len(best)))
    if not whole and len(best) > MOST:  # the worst come first; without a bound is worst of all
        shown = sorted(shown, key=lambda k: (best[k] is not None, best[k] or 0.0))[:MOST]
    sizes = [0] * len(best)
    for row in found.rows:
        sizes[row.clause] += 1
    lines = ["clause   rows   lower bound"] if shown else []
    lines += [f"{k:>6}{sizes[k]:>7}{_number(best[k]):>14}  {_state(found, k)}" for k in shown]
    if len(shown) < len(best):
        lines.append(f"and {len(best) - len(shown)} clauses with larger bounds (-v lists all)")
    return [*lines, _summary(found)]


def _state(found: LowerBounds, clause: int) -> str:
    if clause not in found.positive:
        return "open"
    return "closed" if found.rigorous else "above 0"


def _summary(found: LowerBounds) -> str:
    done = f"{len(found.positive)} of {found.clauses} clauses "
    done += "closed" if found.rigorous else "above 0 (not certified: rounding is not included)"
    parts = [done, f"worst bound {_number(found.worst)}", f"{found.time.get('total', 0.0):.1f} s"]
    if not found.clauses:
        parts = ["the property has no clause" if found.reason is None else "no bounds", *parts[2:]]
    return "; ".join(parts + ([_ENDED[found.reason]] if found.reason in _ENDED else []))


def _methods(found: Sequence[LowerBounds]) -> list[str]:
    lines = ["method          worst bound    closed   iterations    seconds"]
    for result in found:
        closed = f"{len(result.positive)}/{result.clauses}{'' if result.rigorous else '*'}"
        iterations = str(result.iterations) if result.iterations else "-"
        seconds = f"{result.time.get('bounding', 0.0):.2f}"
        lines.append(f"{result.method:<14}{_number(result.worst):>13}{closed:>10}{iterations:>13}{seconds:>11}")
    if not all(result.rigorous for result in found):
        lines.append("* above 0, but not certified: the rounding of linear programs is not included")
    if any(result.method == "lp_cuts" for result in found):
        lines.append("iterations of lp_cuts are rounds of cuts")
    return [*lines, _comparison(found)]


def _comparison(found: Sequence[LowerBounds]) -> str:
    closed = {clause for result in found for clause in result.closed}
    certified = [result for result in found if result.rigorous and result.worst is not None]
    best = max(certified, key=lambda result: result.worst or 0.0, default=None)
    parts = [f"{len(closed)} of {found[0].clauses} clauses closed"]
    if best is not None:
        parts.append(f"best certified worst bound {_number(best.worst)} by {best.method}")
    parts.append(f"{found[0].time.get('total', 0.0):.1f} s")
    reason = next((result.reason for result in found if result.reason is not None), None)
    return "; ".join(parts + ([_ENDED[reason]] if reason in _ENDED else []))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
