"""`verify dataset`: clean, certified and attacked accuracy over a data set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.ball import Lists, images, neighbourhood
from verifier.cli.many import demands_of, folders, judged, reworded, staff_of, terms_of, work
from verifier.cli.options import Common, common, start_logging
from verifier.output import prepare, say, tell, write_file, write_whole

if TYPE_CHECKING:
    from verifier.batch.run import Verdicts
    from verifier.robustness.accuracy import Accuracy
    from verifier.robustness.dataset import DataSet, Inquiry

REPORT = "report.html"


@click.command(cls=Lists)
@click.argument("net")
@images
@click.option("--eps", required=True, metavar="E", help="The radius, before normalisation; 8/255 is understood.")
@neighbourhood
@folders
@work
@judged
@click.option("--json", metavar="FILE", help="Write the accuracies as JSON; '-' is stdout.")
@common
def dataset(**options: Any) -> int:
    """How many images does the network NET classify robustly?

    DATA.npz holds images (N x ...) and their labels.  For each image that is classified correctly it is decided whether
    its class can change within E.  Certified: it cannot.  Falsified: there is a counterexample.  The certified accuracy
    is a proved lower bound of the robust accuracy, the attacked accuracy an upper bound.

    The same command goes on where an earlier one was ended, as `verify batch` does; DIR/report.html shows accuracies by
    class, counterexamples and times.  Exit codes are those of `verify batch`.
    """
    start_logging(options["quiet"], options["verbose"])
    settings = Common.of(options)
    if options["proofs"] is not None and options["norm"] != "inf":
        raise click.UsageError(f"--norm {options['norm']}: proofs are about boxes, so --proofs needs --norm inf")
    prepare([options["junit"], options["json"]], [path for path in _inputs(options) if path])
    from verifier.batch.judge import junit
    from verifier.batch.run import run
    from verifier.batch.store import opened
    from verifier.robustness.dataset import ImageTelling

    demands, terms, staff = demands_of(options), terms_of(options, settings), staff_of(options, settings.verbose)
    inquiry = _inquiry(options)
    with opened(options["out"], options["fresh"]) as store:
        data = inquiry.listed(options["out"], options["fresh"])
        _announce(data, settings.quiet)
        instances = data.instances(options["out"], settings.machine.timeout)
        plan = staff.plan(instances, terms, settings.quiet, ImageTelling(data))
        verdicts = run(plan, store, demands)
    if options["junit"] is not None:
        write_whole(options["junit"], junit(verdicts.records, verdicts.findings))
    accuracy = data.accuracy(verdicts.records, options["out"], verdicts.interrupted)
    _report(options["out"], bool(verdicts.records))
    _tell(accuracy, verdicts, options)
    return verdicts.exit_code


reworded(dataset, timeout="Seconds for each image.")


def _inputs(options: dict[str, Any]) -> list[str | None]:
    return [options[name] for name in ("net", "data", "inputs", "labels")]


def _inquiry(options: dict[str, Any]) -> Inquiry:
    from verifier.errors import InputError
    from verifier.network.models.onnx import load_onnx
    from verifier.robustness.dataset import Inquiry
    from verifier.robustness.images import load_images
    from verifier.robustness.neighbourhood import Neighbourhood

    found = load_images(options["data"], options["inputs"], options["labels"])
    around = Neighbourhood.of(options["norm"], options["clip"], options["mean"], options["std"])
    model = load_onnx(options["net"], declared=found.x[0].size)
    try:
        return Inquiry(model, options["net"], found, options["eps"], around, options["limit"])
    except InputError as error:
        raise error.located(options["data"] or options["inputs"])  # noqa: B904 (the same error, with its file)


def _announce(data: DataSet, quiet: bool) -> None:
    if not quiet:
        from verifier.robustness.accuracy import percentage

        right = sum(image.file is not None for image in data.images)
        share = percentage(right, len(data.images))
        tell(f"{len(data.images)} images, {right} of them classified correctly (clean accuracy {share})")


def _report(folder: str, results: bool) -> None:
    """The page of the folder; without any result there is nothing to show."""
    if results:
        from verifier.report.page import page
        from verifier.report.summary import read_runs

        write_whole(os.path.join(folder, REPORT), page(read_runs([folder]), "Robustness of a data set"))


def _tell(accuracy: Accuracy, verdicts: Verdicts, options: dict[str, Any]) -> None:
    import json

    from verifier.batch.summary import finding_lines
    from verifier.result.result import finite
    from verifier.robustness.accuracy import table_lines

    data = json.dumps(finite(accuracy.as_dict()), allow_nan=False)
    write_file(options["json"], data + "\n")
    if options["json"] == "-":
        say(data)
        return
    lines = [] if options["quiet"] else [*table_lines(accuracy), ""]
    lines += [*finding_lines(verdicts.findings), *accuracy.lines()]
    if verdicts.interrupted:
        lines.append("interrupted, the same command goes on")
    elif verdicts.records and not options["quiet"]:
        lines.append(f"report: {os.path.join(options['out'], REPORT)}")
    say("\n".join(lines))
