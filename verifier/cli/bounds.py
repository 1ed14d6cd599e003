"""`verify bounds`: incomplete verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from verifier.cli.options import common, instance, instance_paths
from verifier.errors import InputError

if TYPE_CHECKING:
    from verifier.registry import Registry


def check_names(options: dict[str, Any]) -> None:
    """Raises BadParameter for a name that nobody knows, the plugins of the configuration included."""
    from verifier.bounding import BOUNDERS, HIDDEN

    hidden = () if options["intermediate"] is None else (options["intermediate"],)
    asked: dict[str, tuple[Registry[Any], tuple[str, ...]]]
    asked = {"--method": (BOUNDERS, options["methods"]), "--intermediate": (HIDDEN, hidden)}
    if not all({*names} <= {*registry.names()} for registry, names in asked.values()):
        from verifier.config import load_config

        load_config(options["config"], options["overrides"])
    for option, (registry, names) in asked.items():
        for name in names:
            try:
                registry.options(name)
            except InputError as error:
                raise click.BadParameter(str(error), click.get_current_context(), param_hint=f"'{option}'") from error


class Described(click.Command):
    """A command whose help ends with the names of all methods."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from verifier.bounding import BOUNDERS, HIDDEN

        formatter.write_paragraph()
        formatter.write_text(f"Methods: {', '.join(BOUNDERS.names())}.")
        formatter.write_text(f"Bounds of hidden neurons: {', '.join(HIDDEN.names())}.")


@click.command(cls=Described)
@instance
@click.option("--method", "methods", multiple=True, required=True, metavar="NAME", help="Repeatable.")
@click.option("--iterations", type=click.IntRange(min=0), metavar="N", help="Of every iterative method named.")
@click.option("--intermediate", metavar="NAME", help="How the hidden neurons are bounded. [default: best]")
@click.option("--json", metavar="FILE", help="Write the bounds as JSON, a line per method; '-' is stdout.")
@click.option("--plot", metavar="FILE.png", help="Draw bound against time.")
@common
def bounds(files: tuple[str, ...], networks: tuple[str, ...], **options: Any) -> int:
    """Lower bounds of every output row, without a search.

    A clause of the property is closed by a row with a bound above zero.  Several methods give a table that compares
    them.  Bounds are rigorous, but for those of linear programs (lp, lp_cuts).
    """
    check_names(options)
    paths = instance_paths(files, networks)
    from verifier.cli.survey import Surveyor

    with Surveyor(*paths, options) as surveyor:
        surveyor.answer = surveyor.run()
    surveyor.draw()
    return surveyor.code
