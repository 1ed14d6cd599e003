"""`verify radius`: how far an input, or every image of a data set, may move without losing its class."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.ball import Lists, images, neighbourhood
from verifier.cli.options import common


@click.command(cls=Lists, short_help="The largest certified and the smallest falsified radius.")
@click.argument("net")
@images
@click.option("--input", "source", metavar="X.npy", help="A single input, before normalisation.")
@click.option("--label", type=int, metavar="K", help="The class it is to keep. [default: the network's own]")
@neighbourhood
@click.option(
    "--tolerance",
    type=click.FloatRange(1e-9, 1, max_open=True),
    default=0.01,
    metavar="T",
    show_default=True,
    help="End when the gap is this share of the falsified radius.",
)
@click.option("--max-eps", "most", metavar="E", help="Do not look beyond this radius.")
@click.option("--json", metavar="FILE", help="Write the result as JSON; '-' is stdout.")
@click.option("--counterexample", metavar="FILE", help="Write the nearest counterexample of a single input.")
@click.option("--plot", metavar="FILE", help="Draw certified accuracy against eps, over a data set.")
@common
def radius(**options: Any) -> int:
    """Find the largest certified and the smallest falsified radius around an input.

    Within the first no input leaves its class, which is proved; within the second one does, which was replayed.  The
    answer is there as soon as they are close (--tolerance), when the time is up (--timeout) or at Ctrl-C.

    With DATA.npz, or --inputs and --labels, the radius of every image, and how the certified accuracy falls with it
    (--plot); --timeout is then that of each image.  Exit code 0: something is known.  3: nothing.
    """
    from verifier.cli.radius_session import ManyRadii, OneRadius

    several = options["data"] is not None or options["inputs"] is not None or options["labels"] is not None
    if several == (options["source"] is not None):
        raise click.UsageError("give either --input X.npy, or a data set: DATA.npz, or --inputs and --labels")
    if several and (options["label"] is not None or options["counterexample"] is not None):
        raise click.UsageError("--label and --counterexample are for a single --input")
    if not several and (options["plot"] is not None or options["limit"] is not None):
        raise click.UsageError("--plot and --limit are for a data set: DATA.npz, or --inputs and --labels")
    with (ManyRadii if several else OneRadius)(options) as session:
        session.answer = session.run()
    session.draw()
    return session.code
