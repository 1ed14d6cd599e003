"""`verify bounds`: incomplete verification."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common, instance, instance_paths


def known(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Checks the names of methods; the list of them is loaded only when it is needed."""
    from verifier.config import METHODS

    for name in names:
        if name not in METHODS:
            raise click.BadParameter(f"there is no method '{name}'; the methods are {', '.join(METHODS)}", ctx, param)
    return names


class Described(click.Command):
    """A command whose help ends with the names of all methods."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from verifier.config import METHODS

        formatter.write_paragraph()
        formatter.write_text(f"Methods: {', '.join(METHODS)}.")


@click.command(cls=Described)
@instance
@click.option("--method", "methods", multiple=True, required=True, callback=known, metavar="NAME", help="Repeatable.")
@click.option("--iterations", type=click.IntRange(min=0), metavar="N", help="Of every iterative method named.")
@click.option(
    "--intermediate",
    type=click.Choice(["interval", "crown", "wong_kolter", "best", "paper"]),
    help="How the hidden neurons are bounded. [default: best]",
)
@click.option("--json", metavar="FILE", help="Write the bounds as JSON, a line per method; '-' is stdout.")
@click.option("--plot", metavar="FILE.png", help="Draw bound against time.")
@common
def bounds(files: tuple[str, ...], networks: tuple[str, ...], **options: Any) -> int:
    """Lower bounds of every output row, without a search.

    A clause of the property is closed by a row with a bound above zero.  Several methods give a table that compares
    them.  Bounds are rigorous, but for those of linear programs (lp, lp_cuts).
    """
    paths = instance_paths(files, networks)
    from verifier.cli.survey import Surveyor

    with Surveyor(*paths, options) as surveyor:
        surveyor.answer = surveyor.run()
    surveyor.draw()
    return surveyor.code
