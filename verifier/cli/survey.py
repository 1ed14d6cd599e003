"""The work of `verify bounds`: bounds of all rows as JSON, or as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from verifier.cli.options import start_logging
from verifier.cli.session import begin
from verifier.config import iteration_overrides
from verifier.errors import Undelivered
from verifier.naming import paths_of
from verifier.output import all_of, aside, prepare, say, text_table, write_file
from verifier.result.delivery import Delivery
from verifier.result.lower_bounds import PHASES, LowerBounds
from verifier.result.result import Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason

if TYPE_CHECKING:
    from verifier.survey import Survey

Found = tuple[LowerBounds, ...]

MOST = 40
"""Clauses in a table, unless all are asked for."""

_ENDED = {
    Reason.TIMEOUT: "the time limit was reached",
    Reason.INTERRUPTED: "the run was interrupted",
    Reason.MEMORY: "the memory did not suffice",
}


class Surveyor(Delivery[Found]):
    """One instance by its paths, the methods, and where their bounds go."""

    def __init__(self, network: str, prop: str, options: dict[str, Any]) -> None:
        """Takes what is not common out of `options`.  Raises InputError if an output could not be written later."""
        super().__init__()
        self.status = Status(Setting(network, prop), phases=PHASES)
        self._methods = tuple(dict.fromkeys(options.pop("methods")))
        self._iterations: int | None = options.pop("iterations")
        self._intermediate: str | None = options.pop("intermediate")
        self._json: str | None = options.pop("json")
        self._plot: str | None = options.pop("plot")
        self._options = options
        self._survey: Survey | None = None
        start_logging(options["quiet"], options["verbose"])
        if self._plot is not None:
            from verifier.report.curves import check_drawable

            check_drawable(self._plot)
        prepare((self._json, self._plot), (*paths_of(network), prop))

    def run(self) -> Found:
        """Bounds all rows."""
        request = begin(self, self.status, self._common())
        with self.status.phase("load"):
            from verifier.survey import Survey

        self._survey = Survey.of(request, self._methods, self.status, curves=self._plot is not None)
        return self._survey.run()

    def _common(self) -> dict[str, Any]:
        """The common options, with all others that say how to bound as overrides of the configuration."""
        overrides = list(self._options["overrides"])
        if self._intermediate is not None:
            overrides.append(f"bounding.intermediate={self._intermediate}")
        if self._iterations is not None:
            overrides += iteration_overrides(self._methods, self._iterations)
        return {**self._options, "overrides": overrides}

    def early(self, reason: Reason) -> Found:
        if self._survey is not None:
            return self._survey.results(reason)
        circumstances = self.status.circumstances()
        return tuple(LowerBounds(method, reason=reason, **circumstances) for method in self._methods)

    def write(self, answer: Found, last: bool) -> int:
        """The JSON file, then stdout.  Raises Undelivered if one of them cannot be written."""
        data = "\n".join(result.as_json() for result in answer)
        text = data
        if self._json != "-":
            lines = table_lines(answer, whole=bool(self._options["verbose"]))
            text = "\n".join(lines[-1:] if self._options["quiet"] else lines)
        if failed := all_of([partial(write_file, self._json, data + "\n"), partial(say, text)]):
            raise Undelivered("; ".join(failed))
        return 3 if any(result.reason is Reason.INTERRUPTED for result in answer) else 0

    def failed(self, error: BaseException) -> bool:
        with suppress(Undelivered):
            write_file(self._json, self.status.fail(error).as_json() + "\n")
        return False

    def draw(self) -> None:
        """The plot comes after the answer: it takes longer than the grace of a time limit allows."""
        if self._plot is None or self.answer is None:
            return
        from verifier.report.curves import draw

        try:
            with aside(self._plot) as temporary:
                draw(self.answer, str(temporary))
        except OSError as error:
            raise Undelivered(f"the plot {self._plot} cannot be written: {error.strerror or error}") from error


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
    rows = [[str(k), str(sizes[k]), _number(best[k]), _state(found, k)] for k in shown]
    lines = text_table([["clause", "rows", "lower bound", ""], *rows]) if shown else []
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
    rows = [["method", "worst bound", "closed", "iterations", "seconds"]]
    for result in found:
        closed = f"{len(result.positive)}/{result.clauses}{'' if result.rigorous else '*'}"
        iterations = str(result.iterations) if result.iterations else "-"
        seconds = f"{result.time.get('bounding', 0.0):.2f}"
        rows.append([result.method, _number(result.worst), closed, iterations, seconds])
    lines = text_table(rows)
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
