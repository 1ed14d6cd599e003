"""`verify report`: one page about one or several batch runs."""

from __future__ import annotations

import click

from verifier.cli.options import start_logging
from verifier.output import check_writable, say, say_document, write_whole


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", required=True, metavar="FILE.html", help="Where the page is written; '-' is stdout.")
@click.option("--title", default="Verification report", show_default=True, metavar="TEXT", help="Its heading.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing; no warnings.")
@click.option("-v", "--verbose", is_flag=True, help="Log what is done.")
def report(folders: tuple[str, ...], output: str, title: str, quiet: bool, verbose: bool) -> int:
    """Write one self-contained HTML page about batch runs.

    DIR is the folder that `verify batch --out DIR` wrote, or its results.jsonl.  The page has tables per family, a
    cactus plot, the time by phase, and for each instance its command line and its counterexample; networks that
    look at images get pictures of it.  Two folders are compared instance by instance.
    """
    start_logging(quiet, verbose)
    if output != "-":
        check_writable(output)
    from verifier.report.page import page
    from verifier.report.summary import read_runs

    runs = read_runs(folders)
    text = page(runs, title)
    if output == "-":
        say_document(text)
        return 0
    write_whole(output, text)
    if not quiet:
        say(f"{output}: {sum(len(run.records) for run in runs)} results of {len(runs)} run(s)")
    return 0
