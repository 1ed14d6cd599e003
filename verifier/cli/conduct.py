"""What stands around every run that ends in a verdict: files, time limit, interrupts, errors, exit code."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from verifier.cli.answer import Answer, Sinks
from verifier.cli.common import Common, start_logging
from verifier.cli.progress import progress
from verifier.cli.watchdog import watched
from verifier.clock import Clock
from verifier.result.ledger import Ledger, sentence, versions
from verifier.result.result import Result, Setting
from verifier.result.verdict import Reason, Verdict
from verifier.streams import tell

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One instance by its paths, where its answer goes, and the common options as the user gave them."""

    network: str
    property: str
    sinks: Sinks
    options: dict[str, Any]

    @classmethod
    def of(cls, network: str, prop: str, options: dict[str, Any]) -> Request:
        """Takes the output options out of `options`."""
        outputs = {name: options.pop(name) for name in ("json", "result", "counterexample")}
        return cls(network, prop, Sinks(**outputs, quiet=options["quiet"]), options)


def conduct(request: Request, work: Callable[[Common, Ledger], Result]) -> int:
    """Runs `work` and gives its answer, or the answer of whatever ends it; the exit code.

    Guarantees: an answer on every path, exactly one.  Errors are written to the files and raised again, but for
    files that cannot be written to.  Raises Undelivered if the answer could not be written.
    """
    start_logging(request.options["quiet"], request.options["verbose"])
    answer = Answer(request.sinks.write)
    ledger = Ledger(Setting(request.network, request.property))

    def early(reason: Reason) -> Result:
        return _early(ledger, reason)

    request.sinks.prepare(request.network, request.property)
    try:
        options = begin(request.network, request.property, request.options, ledger)
        with progress(ledger, options.clock, options.quiet):
            ending = Ending(answer, early, lambda result: result.verdict.exit_code)
            result = ending.of(options.clock, lambda: work(options, ledger))
    except KeyboardInterrupt:
        result = early(Reason.INTERRUPTED)
    except BaseException as error:  # of any kind, `sys.exit` in a library too: the files must say `error` before
        answer.give(ledger.fail(error))
        raise
    if result.message and not result.verdict.decided:
        log.info("%s", result.message)
    answer.give(result)
    return result.verdict.exit_code


def begin(network: str, prop: str, given: Mapping[str, Any], ledger: Ledger) -> Common:
    """The common options, checked; the ledger knows them from now on, and all that an early answer needs is loaded."""
    versions()
    options = Common.of(dict(given))
    ledger.clock = options.clock
    ledger.setting = Setting(network, prop, options.timeout, options.config.resolved(), options.seed)
    return options


AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Ending(Generic[AnswerT]):
    """How work ends that meets its deadline or a signal: with what `early` then knows, and the exit code of that."""

    answer: Answer[AnswerT]
    early: Callable[[Reason], AnswerT]
    code: Callable[[AnswerT], int]

    def of(self, clock: Clock, work: Callable[[], AnswerT]) -> AnswerT:
        """What `work` returns, or what is known when a signal ends it.

        If it is inside of a long call at the deadline or after a signal, the answer is given here and the process
        ends.
        """
        signals: list[int] = []

        def overdue(reason: Reason) -> None:
            try:
                known = self.early(reason)
                given, code = self.answer.give(known), self.code(known)
            except Exception as error:  # of any kind: nobody else can end this process
                tell(f"error: {sentence(error)}")
                given, code = True, 4
            if given:
                os._exit(code)  # the main thread is inside of a long call and cannot be ended otherwise

        try:
            with watched(clock, overdue, signals):
                return work()
        except KeyboardInterrupt:
            return self.early(Reason.INTERRUPTED)
        except Exception:  # of any kind: a library may turn an interrupt into an error of its own
            if not signals:
                raise
            return self.early(Reason.INTERRUPTED)


def _early(ledger: Ledger, reason: Reason) -> Result:
    if reason is Reason.TIMEOUT:
        return ledger.conclude(Verdict.TIMEOUT, reason, "the time limit was reached")
    return ledger.conclude(Verdict.UNKNOWN, reason, "the run was interrupted")


def deciding(network: str, prop: str, trace: str | None = None) -> Callable[[Common, Ledger], Result]:
    """The work of `verify NET PROP`; the search tree goes to the file `trace`."""

    def work(options: Common, ledger: Ledger) -> Result:
        from verifier import run

        return run.decide(_task(options, network, prop, trace), ledger)

    return work


def attacking(network: str, prop: str) -> Callable[[Common, Ledger], Result]:
    """The work of `verify attack NET PROP`."""

    def work(options: Common, ledger: Ledger) -> Result:
        from verifier import run

        return run.attack(_task(options, network, prop), ledger)

    return work


def _task(options: Common, network: str, prop: str, trace: str | None = None) -> Any:
    from verifier.loading import from_files
    from verifier.run import Task

    return Task(from_files(network, prop), options.config, options.device, options.threads, options.seed, trace)
