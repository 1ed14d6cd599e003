"""The work of `verify batch`, from its options to its exit code."""

from __future__ import annotations

import logging
import os
from typing import Any

from verifier.batch import machine
from verifier.batch.conduct import Plan, Verdicts, conduct
from verifier.batch.engine import LocalEngine
from verifier.batch.instances import Instance, read_expected, read_instances, select
from verifier.batch.judge import Demands, Require
from verifier.batch.junit import junit
from verifier.batch.process import Launch
from verifier.batch.records import Terms, read_records
from verifier.batch.store import opened
from verifier.batch.summary import finding_lines, last_line, table_lines
from verifier.cli.common import Common, start_logging
from verifier.cli.files import prepare, write_whole
from verifier.config import presets
from verifier.errors import InputError
from verifier.streams import say

log = logging.getLogger(__name__)


def run_batch(options: dict[str, Any]) -> int:
    """Follows the command line; the exit code."""
    start_logging(options["quiet"], options["verbose"])
    words = _words(options["config"], options["overrides"])
    common = Common.of(options)  # takes its options away
    prepare([options["junit"]])
    demands = _demands(options)
    instances = select(read_instances(options["sources"], common.timeout), options["pattern"], options["limit"])
    if not instances:
        raise InputError("no instance is left to decide" if options["pattern"] else "the lists hold no instance")
    plan = _plan(options, common, instances, words)
    with opened(options["out"], options["fresh"]) as store:
        verdicts = conduct(plan, store, demands)
    if not verdicts.interrupted:
        for warning in demands.unused(verdicts.records):
            log.warning("%s", warning)
    if options["junit"] is not None:
        write_whole(options["junit"], junit(verdicts.records, verdicts.findings))
    _tell(plan, verdicts)
    return verdicts.exit_code


def _demands(options: dict[str, Any]) -> Demands:
    baseline, strict = options["baseline"], options["fail_on_regression"]
    if strict and baseline is None:
        raise InputError("--fail-on-regression needs a --baseline to compare with")
    before = {} if baseline is None else {record.names: record for record in read_records(baseline)}
    require = None if options["require"] is None else Require(options["require"])
    return Demands(read_expected(options["expected"]), before, strict, require)


def _plan(options: dict[str, Any], common: Common, instances: tuple[Instance, ...], words: tuple[str, ...]) -> Plan:
    jobs = options["jobs"] or machine.workers(common.threads, common.device)
    jobs = min(jobs, len(instances))
    threads = common.threads or machine.threads_each(jobs)
    memory = options["memory"] * 10**6 if options["memory"] else machine.memory_each(jobs)
    launch = Launch(threads, memory, common.verbose)
    terms = Terms(common.config, common.device, threads, common.seed, words)
    if options["engine"] == "ray":
        from verifier.batch.cluster import RayEngine

        return Plan(instances, terms, RayEngine(options["address"], jobs * threads, launch), quiet=common.quiet)
    if options["address"] is not None:
        raise InputError("--address is that of a Ray cluster: add --engine ray")
    return Plan(instances, terms, LocalEngine(jobs, launch), jobs, common.quiet)


def _words(config: str, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The options of the configuration for a command line that is typed elsewhere."""
    named = config if config in presets() else os.path.abspath(config)
    return ("--config", named, *(word for override in overrides for word in ("--set", override)))


def _tell(plan: Plan, verdicts: Verdicts) -> None:
    lines = [] if plan.quiet else table_lines(verdicts.records)
    lines += finding_lines(verdicts.findings)
    lines.append(last_line(verdicts.records, len(plan.instances), verdicts.findings))
    if verdicts.interrupted:
        lines[-1] += "; interrupted, the same command goes on"
    say("\n".join(lines))
