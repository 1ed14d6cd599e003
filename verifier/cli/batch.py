"""`verify batch`: many instances."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.options import Common, common, start_logging
from verifier.errors import InputError
from verifier.output import prepare, say, write_whole

if TYPE_CHECKING:
    from verifier.batch.instances import Instance
    from verifier.batch.judge import Demands
    from verifier.batch.run import Plan, Verdicts

_HELP = {
    "timeout": "Seconds for each instance, instead of the lists' limits.",
    "threads": "CPU cores of each worker. [default: its share]",
    "quiet": "Only what is wrong, and the last line.",
    "verbose": "Log what is done; show what workers write to stderr.",
}


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="CSV_OR_FOLDER...")
@click.option("--out", required=True, metavar="DIR", help="The folder of the results; made if needed.")
@click.option("--fresh", is_flag=True, help="Forget the results in DIR instead of going on from them.")
@click.option("--proofs", metavar="DIR", help="Write the proof of every `unsat` to this folder; made if needed.")
@click.option("--filter", "pattern", metavar="GLOB", help="Only networks or properties whose path or name matches.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N instances.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes. [default: cores / 4]")
@click.option("--memory", type=click.IntRange(min=1), metavar="MB", help="Of each worker. [default: its share of 90 %]")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to run. [default: local]")
@click.option("--address", metavar="ADDRESS", help="Of a Ray cluster; without it one is started on this machine.")
@click.option("--expected", multiple=True, metavar="CSV", help="Known verdicts (onnx,vnnlib,expected); repeatable.")
@click.option("--baseline", metavar="RESULTS.jsonl", help="Results of an earlier batch, to compare with.")
@click.option("--fail-on-regression", is_flag=True, help="Fail if a sat or unsat of the baseline is lost.")
@click.option("--require", type=click.Choice(["unsat", "decided"]), help="Fail if an instance ends otherwise.")
@click.option("--junit", metavar="FILE.xml", help="Write a test case per instance, for CI systems.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "github", "sarif"]),
    default="text",
    help="stdout at the end: tables; with GitHub's annotations; SARIF instead. [default: text]",
)
@common
def batch(**options: Any) -> int:
    """Decide many instances: lists as in VNN-COMP (onnx,vnnlib,timeout), or folders with an instances.csv.

    Each result is a line of DIR/results.jsonl as soon as it is known.  The same command goes on where an earlier one
    was ended.  Exit code 0: all ran.  1: an error, a verdict against --expected, a regression, or --require not met.
    `verify check --batch DIR` checks the proofs that --proofs has asked for.
    """
    start_logging(options["quiet"], options["verbose"])
    settings = Common.of(options)
    prepare([options["junit"]])
    import logging

    from verifier.batch.instances import read_instances, select
    from verifier.batch.judge import junit
    from verifier.batch.run import run
    from verifier.batch.store import opened

    demands = _demands(options)
    listed = read_instances(options["sources"], settings.machine.timeout)
    instances = select(listed, options["pattern"], options["limit"])
    if not instances:
        raise InputError("no instance is left to decide" if options["pattern"] else "the lists hold no instance")
    plan = _plan(options, settings, instances)
    with opened(options["out"], options["fresh"]) as store:
        verdicts = run(plan, store, demands)
    if not verdicts.interrupted:
        for warning in demands.unused(verdicts.records):
            logging.getLogger(__name__).warning("%s", warning)
    verdicts = replace(verdicts, findings=(*verdicts.findings, *demands.vanished(i.names for i in listed)))
    if options["junit"] is not None:
        write_whole(options["junit"], junit(verdicts.records, verdicts.findings))
    _tell(plan, verdicts, options["style"])
    return verdicts.exit_code


for _option in batch.params:  # the common options, in the words of this command
    if isinstance(_option, click.Option) and _option.name in _HELP:
        _option.help = _HELP[_option.name]


def _demands(options: dict[str, Any]) -> Demands:
    from verifier.batch.instances import read_expected
    from verifier.batch.judge import Demands, Require
    from verifier.batch.records import read_records

    baseline, strict = options["baseline"], options["fail_on_regression"]
    if strict and baseline is None:
        raise InputError("--fail-on-regression needs a --baseline to compare with")
    before = {} if baseline is None else {record.names: record for record in read_records(baseline)}
    require = None if options["require"] is None else Require(options["require"])
    return Demands(read_expected(options["expected"]), before, strict, require)


def _plan(options: dict[str, Any], settings: Common, instances: tuple[Instance, ...]) -> Plan:
    from verifier.batch.engine import LocalEngine
    from verifier.batch.jobs import Terms
    from verifier.batch.process import Launch
    from verifier.batch.run import Plan
    from verifier.machine import Machine, cores_each, memory_each, workers

    machine = settings.machine
    jobs = min(options["jobs"] or workers(machine), len(instances))
    threads = machine.threads or cores_each(jobs)
    memory = options["memory"] * 10**6 if options["memory"] else memory_each(jobs)
    launch = Launch(threads, memory, settings.verbose)
    words = _words(options["config"], options["overrides"])
    proofs = _proofs(options["proofs"], settings)
    terms = Terms(settings.config, Machine(machine.device, threads), settings.seed, words, proofs)
    if options["engine"] == "ray":
        from verifier.batch.cluster import RayEngine

        return Plan(instances, terms, RayEngine(options["address"], jobs * threads, launch), quiet=settings.quiet)
    if options["address"] is not None:
        raise InputError("--address is that of a Ray cluster: add --engine ray")
    return Plan(instances, terms, LocalEngine(jobs, launch), jobs, settings.quiet)


def _proofs(folder: str | None, settings: Common) -> str | None:
    """The folder of the proofs, made if needed.  Raises InputError if it cannot be, or if the options allow none."""
    if folder is None:
        return None
    from verifier.files import blamed
    from verifier.loading import GivenFiles
    from verifier.output import check_writable
    from verifier.pipeline import Request

    path = os.path.realpath(folder)
    Request(GivenFiles("", ""), settings.config, proof=folder).recording()
    with blamed("the folder of the proofs cannot be made", folder):
        os.makedirs(path, exist_ok=True)
    check_writable(os.path.join(path, "proof"))
    return path


def _words(config: str, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The options of the configuration for a command line that is typed elsewhere."""
    from verifier.config import presets

    named = config if config in presets() else os.path.abspath(config)
    return ("--config", named, *(word for override in overrides for word in ("--set", override)))


def _tell(plan: Plan, verdicts: Verdicts, style: str) -> None:
    from verifier.batch.annotations import Format, github_lines, sarif
    from verifier.batch.summary import finding_lines, last_line, table_lines

    form = Format(style)
    if form is Format.SARIF:
        say(sarif(verdicts.findings))
        return
    lines = [] if plan.quiet else table_lines(verdicts.records)
    lines += github_lines(verdicts.findings) if form is Format.GITHUB else finding_lines(verdicts.findings)
    lines.append(last_line(verdicts.records, len(plan.instances), verdicts.findings))
    if verdicts.interrupted:
        lines[-1] += "; interrupted, the same command goes on"
    say("\n".join(lines))
