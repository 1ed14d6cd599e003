"""`verify batch`: many instances."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common

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
@common
def batch(**options: Any) -> int:
    """Decide many instances: lists as in VNN-COMP (onnx,vnnlib,timeout), or folders with an instances.csv.

    Each result is a line of DIR/results.jsonl as soon as it is known.  The same command goes on where an earlier one
    was ended.  Exit code 0: all ran.  1: an error, a verdict against --expected, a regression, or --require not met.
    """
    from verifier.cli.batch_run import run_batch

    return run_batch(options)


for _option in batch.params:  # the common options, in the words of this command
    if isinstance(_option, click.Option) and _option.name in _HELP:
        _option.help = _HELP[_option.name]
