"""`verify batch`: many instances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.many import demands_of, folders, judged, reworded, staff_of, terms_of, work
from verifier.cli.options import Common, common, start_logging
from verifier.errors import InputError
from verifier.output import prepare, say, write_whole

if TYPE_CHECKING:
    from verifier.batch.run import Plan, Verdicts


@click.command(short_help="Decide many instances, and go on after an interruption.")
@click.argument("sources", nargs=-1, required=True, metavar="CSV_OR_FOLDER...")
@folders
@click.option("--filter", "pattern", metavar="GLOB", help="Only networks or properties whose path or name matches.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N instances.")
@work
@click.option("--expected", multiple=True, metavar="CSV", help="Known verdicts (onnx,vnnlib,expected); repeatable.")
@judged
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

    demands = demands_of(options, options["expected"])
    listed = read_instances(options["sources"], settings.machine.timeout)
    instances = select(listed, options["pattern"], options["limit"])
    if not instances:
        raise InputError("no instance is left to decide" if options["pattern"] else "the lists hold no instance")
    plan = staff_of(options, settings.verbose).plan(instances, terms_of(options, settings), settings.quiet)
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


reworded(batch, timeout="Seconds for each instance, instead of the lists' limits.")


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
