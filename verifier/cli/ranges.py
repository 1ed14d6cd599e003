"""`verify ranges`: certified minimum and maximum of outputs."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common


@click.command(short_help="Certified minimum and maximum of every output.")
@click.argument("net")
@click.argument("prop", required=False)
@click.option("--lower", metavar="L.npy", help="The lower end of the input box, in the place of PROP.")
@click.option("--upper", metavar="U.npy", help="Its upper end.")
@click.option("--rows", metavar="R.npy", help="Linear functions of the outputs, one per row. [default: every output]")
@click.option(
    "--gap",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="How close certified ends are to values that are reached; of values beyond 1 it is a share.",
)
@click.option("--json", metavar="FILE", help="Write the ranges as JSON; '-' is stdout.")
@common
def ranges(net: str, prop: str | None, **options: Any) -> int:
    """Certified minimum and maximum of every output over the boxes of PROP, or over a box given by arrays.

    Each end has a bound that is proved, and a value that the network itself reaches at a point of the box; branch and
    bound moves them towards each other.  The exit code is 0 if all ends are as close as --gap says, else 3.
    """
    box = options["lower"], options["upper"]
    if (prop is None) == (box == (None, None)) or (None in box and box != (None, None)):
        raise click.UsageError("the input set is given either by PROP or by both --lower and --upper")
    from verifier.cli.ranges_session import RangeSession

    with RangeSession(net, prop, options) as session:
        session.answer = session.run()
    return session.code
