"""The work of `verify bounds`, from its options to its answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verifier.cli.answer import Answer, all_of, write_file
from verifier.cli.common import Common, start_logging
from verifier.cli.conduct import Ending, begin
from verifier.cli.files import aside, prepare
from verifier.cli.progress import progress
from verifier.cli.tables import table_lines
from verifier.config import iteration_overrides
from verifier.errors import Undelivered
from verifier.result.ledger import Ledger
from verifier.result.lower_bounds import PHASES, LowerBounds
from verifier.result.result import Setting
from verifier.result.verdict import Reason
from verifier.streams import say

if TYPE_CHECKING:
    from verifier.incomplete import Record

Found = tuple[LowerBounds, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One instance by its paths, the methods, where the answer goes, and the common options as the user gave them."""

    network: str
    property: str
    methods: tuple[str, ...]
    iterations: int | None
    intermediate: str | None
    json: str | None
    plot: str | None
    options: dict[str, Any]

    @classmethod
    def of(cls, network: str, prop: str, options: dict[str, Any]) -> Question:
        """Takes what is not common out of `options`."""
        own = {name: options.pop(name) for name in ("iterations", "intermediate", "json", "plot")}
        methods = tuple(dict.fromkeys(options.pop("methods")))
        return cls(network, prop, methods, **own, options=options)

    def common(self) -> dict[str, Any]:
        """The common options, with all others that say how to bound as overrides of the configuration."""
        overrides = list(self.options["overrides"])
        if self.intermediate is not None:
            overrides.append(f"bounding.intermediate={self.intermediate}")
        if self.iterations is not None:
            overrides += iteration_overrides(self.methods, self.iterations)
        return {**self.options, "overrides": overrides}

    def check(self) -> None:
        """Raises InputError now if an output could not be written later; takes old ones away."""
        if self.plot is not None:
            from verifier.report.curves import check_drawable

            check_drawable(self.plot)
        prepare((self.json, self.plot), (self.network, self.property))

    def write(self, found: Found) -> None:
        """The JSON file, then stdout.  Raises Undelivered if one of them cannot be written."""
        data = "\n".join(result.as_json() for result in found)
        text = data
        if self.json != "-":
            lines = table_lines(found, whole=self.options["verbose"])
            text = "\n".join(lines[-1:] if self.options["quiet"] else lines)
        if failed := all_of([lambda: write_file(self.json, data + "\n"), lambda: say(text)]):
            raise Undelivered("; ".join(failed))


def answer(question: Question) -> int:
    """Bounds all rows and gives the answer, with what is known when the time is up; the exit code."""
    start_logging(question.options["quiet"], question.options["verbose"])
    ledger = Ledger(Setting(question.network, question.property), phases=PHASES)
    records: list[Record] = []

    def early(reason: Reason) -> Found:
        # Nothing may be imported here: the main thread may be in the midst of importing it.
        if records:
            return records[0].results(reason)
        spent = {"total": ledger.clock.elapsed()} | ledger.times()
        return tuple(LowerBounds(m, reason=reason, time=spent, setting=ledger.setting) for m in question.methods)

    def work(options: Common) -> Found:
        with ledger.phase("load"):
            from verifier.incomplete import Record, survey
            from verifier.loading import from_files
            from verifier.run import Task

        load = from_files(question.network, question.property)
        records.append(Record.of(question.methods, options.config, ledger, curves=question.plot is not None))
        return survey(Task(load, options.config, options.device, options.threads, options.seed), records[0])

    ending = Ending(Answer(question.write), early, _exit_code)
    question.check()
    try:
        options = begin(question.network, question.property, question.common(), ledger)
        with progress(ledger, options.clock, options.quiet):
            found = ending.of(options.clock, lambda: work(options))
    except BaseException as error:  # of any kind, `sys.exit` in a library too: the file must say `error` before
        with suppress(Undelivered):
            write_file(question.json, ledger.fail(error).as_json() + "\n")
        raise
    ending.answer.give(found)
    if question.plot is not None:
        _draw(question.plot, found)
    return _exit_code(found)


def _exit_code(found: Found) -> int:
    return 3 if any(result.reason is Reason.INTERRUPTED for result in found) else 0


def _draw(path: str, found: Found) -> None:
    """The plot comes after the answer: it takes longer than the grace of a time limit allows."""
    from verifier.report.curves import draw

    try:
        with aside(path) as temporary:
            draw(found, str(temporary))
    except OSError as error:
        raise Undelivered(f"the plot {path} cannot be written: {error.strerror or error}") from error
