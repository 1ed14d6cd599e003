"""What commands about many instances share: options, demands, workers, proofs.  Nothing heavy is imported here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verifier.cli.options import Common
from verifier.errors import InputError

if TYPE_CHECKING:
    from verifier.batch.jobs import Terms
    from verifier.batch.judge import Demands
    from verifier.batch.staff import Staff

F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "threads": "CPU cores of each worker. [default: its share]",
    "quiet": "Only what is wrong, and the last line.",
    "verbose": "Log what is done; show what workers write to stderr.",
}
_FOLDERS = (
    click.option("--out", required=True, metavar="DIR", help="The folder of the results; made if needed."),
    click.option("--fresh", is_flag=True, help="Forget the results in DIR instead of going on from them."),
    click.option("--proofs", metavar="DIR", help="Write the proof of every `unsat` to this folder; made if needed."),
)
_WORK = (
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes. [default: cores / 4]"),
    click.option(
        "--memory", type=click.IntRange(min=1), metavar="MB", help="Of each worker. [default: its share of 90 %]"
    ),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to run. [default: local]"
    ),
    click.option("--address", metavar="ADDRESS", help="Of a Ray cluster; without it one is started on this machine."),
)
_JUDGED = (
    click.option("--baseline", metavar="RESULTS.jsonl", help="Results of an earlier batch, to compare with."),
    click.option("--fail-on-regression", is_flag=True, help="Fail if a sat or unsat of the baseline is lost."),
    click.option("--require", type=click.Choice(["unsat", "decided"]), help="Fail if an instance ends otherwise."),
    click.option("--junit", metavar="FILE.xml", help="Write a test case per instance, for CI systems."),
)


def folders(command: F) -> F:
    """Adds the options of the folders for results and proofs."""
    return _with(command, _FOLDERS)


def work(command: F) -> F:
    """Adds the options of the workers."""
    return _with(command, _WORK)


def judged(command: F) -> F:
    """Adds the options of what results are held against."""
    return _with(command, _JUDGED)


def _with(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def reworded(command: click.Command, **words: str) -> None:
    """The common options in the words of a command about many instances."""
    for option in command.params:
        if isinstance(option, click.Option) and option.name in (known := _HELP | words):
            option.help = known[option.name]


def demands_of(options: Mapping[str, Any], expected: tuple[str, ...] = ()) -> Demands:
    """What the results are held against.  Raises InputError."""
    from verifier.batch.instances import read_expected
    from verifier.batch.judge import Demands, Require
    from verifier.batch.records import read_records

    baseline, strict = options["baseline"], options["fail_on_regression"]
    if strict and baseline is None:
        raise InputError("--fail-on-regression needs a --baseline to compare with")
    before = {} if baseline is None else {record.names: record for record in read_records(baseline)}
    require = None if options["require"] is None else Require(options["require"])
    return Demands(read_expected(expected), before, strict, require)


def staff_of(options: Mapping[str, Any], verbose: bool) -> Staff:
    """The workers that the options ask for."""
    from verifier.batch.staff import Staff

    return Staff(options["jobs"], options["memory"], options["engine"] == "ray", options["address"], verbose)


def terms_of(options: Mapping[str, Any], settings: Common) -> Terms:
    """How every instance is treated.  Raises InputError if the folder of the proofs cannot be made."""
    from verifier.batch.jobs import Terms

    words = _words(options["config"], options["overrides"])
    return Terms(settings.config, settings.machine, settings.seed, words, _proofs(options["proofs"], settings))


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
