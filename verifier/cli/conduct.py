"""What stands around every run that ends in a verdict: files, time limit, interrupts, errors, exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifier.cli.answer import Answer, Sinks
from verifier.cli.common import Common, start_logging
from verifier.cli.progress import progress
from verifier.cli.watchdog import watched
from verifier.result.ledger import Ledger
from verifier.result.result import Result, Setting
from verifier.result.verdict import Reason, Verdict

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

    Guarantees: an answer on every path, exactly one.  Errors are written to the files and raised again.
    """
    start_logging(request.options["quiet"], request.options["verbose"])
    answer = Answer(request.sinks)
    ledger = Ledger(Setting(request.network, request.property))
    signals: list[int] = []

    def overdue(reason: Reason) -> None:
        if answer.give(_early(ledger, reason)):
            sys.stderr.flush()
            os._exit(3)  # the main thread is inside of a long call and cannot be ended otherwise

    try:
        request.sinks.check()
        options = Common.of(dict(request.options))
        ledger.clock = options.clock
        ledger.setting = Setting(
            request.network, request.property, options.timeout, options.config.resolved(), options.seed
        )
        with watched(options.clock, overdue, signals), progress(ledger, options.clock, options.quiet):
            result = work(options, ledger)
    except KeyboardInterrupt:
        result = _early(ledger, Reason.INTERRUPTED)
    except Exception as error:  # of any kind: the files must say `error` before it goes on
        if not signals:
            answer.give(ledger.fail(error))
            raise
        result = _early(ledger, Reason.INTERRUPTED)
    if result.message and not result.verdict.decided:
        log.info("%s", result.message)
    answer.give(result)
    return result.verdict.exit_code


def _early(ledger: Ledger, reason: Reason) -> Result:
    if reason is Reason.TIMEOUT:
        return ledger.conclude(Verdict.TIMEOUT, reason, "the time limit was reached")
    return ledger.conclude(Verdict.UNKNOWN, reason, "the run was interrupted")


def deciding(network: str, prop: str) -> Callable[[Common, Ledger], Result]:
    """The work of `verify NET PROP`."""

    def work(options: Common, ledger: Ledger) -> Result:
        from verifier import run

        return run.decide(_task(options, network, prop), ledger)

    return work


def attacking(network: str, prop: str) -> Callable[[Common, Ledger], Result]:
    """The work of `verify attack NET PROP`."""

    def work(options: Common, ledger: Ledger) -> Result:
        from verifier import run

        return run.attack(_task(options, network, prop), ledger)

    return work


def _task(options: Common, network: str, prop: str) -> Any:
    from verifier.run import Task, from_files

    return Task(from_files(network, prop), options.config, options.device, options.threads, options.seed)
