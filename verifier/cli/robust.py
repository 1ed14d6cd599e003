"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common, outputs


class Lists(click.Command):
    """A command whose options --mean and --std take one number or several: `--mean 0.5 0.4` and `--mean 0.5,0.4`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            joined.append(rest.pop(0))
            if joined[-1] in ("--mean", "--std"):
                numbers = []
                while rest and _numeric(rest[0]):
                    numbers.append(rest.pop(0))
                joined += [",".join(numbers)] if numbers else []
        return super().parse_args(ctx, joined)


def _numeric(word: str) -> bool:
    """Whether a word is a number, a fraction such as 8/255, or a list of such."""
    from fractions import Fraction

    try:
        return bool([Fraction(part) for part in word.split(",")])
    except (ValueError, ZeroDivisionError):
        return False


@click.command(cls=Lists)
@click.argument("net")
@click.option("--input", "source", required=True, metavar="X.npy", help="The input, before normalisation.")
@click.option("--label", type=int, required=True, metavar="K", help="The class that must win.")
@click.option("--eps", required=True, metavar="E", help="The radius, before normalisation; 8/255 is understood.")
@click.option("--norm", type=click.Choice(["inf"]), default="inf", show_default=True, help="The norm of the ball.")
@click.option("--mean", default="0", metavar="M...", help="Subtracted from the input; one number, or one per channel.")
@click.option("--std", default="1", metavar="S...", help="The input is divided by it; as --mean.")
@click.option("--clip", nargs=2, metavar="LO HI", help="The range of valid inputs, before normalisation.")
@click.option("-o", "--output", required=True, metavar="P.vnnlib", help="Where the property goes; '-' is stdout.")
@click.option(
    "--verify", "decide", is_flag=True, help="Decide the property too; the answer is as of `verify NET PROP`."
)
@outputs
@common
def robust(net: str, output: str, decide: bool, **options: Any) -> int:
    """Write the property that all inputs near X have class K."""
    names = ("source", "label", "eps", "norm", "mean", "std", "clip")
    ball = {name: options.pop(name) for name in names}
    if decide and output == "-":
        raise click.UsageError("with --verify stdout carries the answer: -o needs a file for the property")
    if not decide and (unused := [name for name in ("json", "result", "counterexample") if options[name]]):
        raise click.UsageError(f"--{unused[0]} is for the answer: it needs --verify")
    from verifier.cli.common import Common, start_logging
    from verifier.cli.conduct import Request, conduct, deciding
    from verifier.cli.local import write_property
    from verifier.result.ledger import Ledger
    from verifier.result.result import Result

    request = Request.of(net, output, options)
    if not decide:
        start_logging(options["quiet"], options["verbose"])
        Common.of(dict(request.options))
        write_property(output, net, **ball)
        return 0

    def work(common: Common, ledger: Ledger) -> Result:
        with ledger.phase("load"):
            write_property(output, net, **ball)
        return deciding(net, output)(common, ledger)

    return conduct(request, work)
