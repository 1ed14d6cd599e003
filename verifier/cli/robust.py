"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.arrays import load_array
from verifier.cli.options import Common, common, outputs, start_logging
from verifier.output import prepare, say_document, write_whole

if TYPE_CHECKING:
    from verifier.loading import GivenRobustness


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
@click.option(
    "--norm", type=click.Choice(["inf", "2", "1"]), default="inf", show_default=True, help="The norm of the ball."
)
@click.option("--mean", default="0", metavar="M...", help="Subtracted from the input; one number, or one per channel.")
@click.option("--std", default="1", metavar="S...", help="The input is divided by it; as --mean.")
@click.option("--clip", nargs=2, metavar="LO HI", help="The range of valid inputs, before normalisation.")
@click.option("-o", "--output", metavar="P.vnnlib", help="Where the property goes; '-' is stdout.")
@click.option("--verify", "decide", is_flag=True, help="Decide the property; the answer is as of `verify NET PROP`.")
@outputs
@common
def robust(net: str, output: str | None, decide: bool, **options: Any) -> int:
    """Write or decide the property that all inputs near X have class K.

    With -o it is written as VNN-LIB, with --verify it is decided.  A ball in the norm 2 or 1 has no form in VNN-LIB
    1.0, whose input sets are boxes; --verify decides it without a file.
    """
    names = ("source", "label", "eps", "norm", "mean", "std", "clip")
    ball = {name: options.pop(name) for name in names}
    _check(output, decide, ball["norm"], options)
    if not decide:
        assert output is not None
        start_logging(options["quiet"], options["verbose"])
        Common.of(options)
        write_property(output, given_by(net, **ball))
        return 0
    from verifier.cli.session import Session

    with Session(net, output, options) as session:
        request = session.begin() if output is not None else session.begin_without_file(lambda: given_by(net, **ball))
        from verifier import pipeline

        if output is not None:
            with session.status.phase("load"):
                write_property(output, given_by(net, **ball))
        session.answer = pipeline.decide(request, session.status)
    return session.code


def _check(output: str | None, decide: bool, norm: str, options: Mapping[str, Any]) -> None:
    """Raises UsageError for options that do not go together."""
    if output is None and not decide:
        raise click.UsageError("nothing to do: give -o P.vnnlib for the property, --verify for the answer, or both")
    if output is not None and norm != "inf":
        raise click.UsageError(
            f"--norm {norm}: a ball has no form in VNN-LIB 1.0, whose input sets are boxes (that of norm 1 is linear "
            "only with further variables); leave out -o, --verify decides it without a file"
        )
    if decide and output == "-":
        raise click.UsageError("with --verify stdout carries the answer: -o needs a file for the property")
    if not decide and (unused := [name for name in ("json", "result", "counterexample") if options[name]]):
        raise click.UsageError(f"--{unused[0]} is for the answer: it needs --verify")


def write_property(output: str, given: GivenRobustness) -> None:
    """Writes the property to a file, or to stdout if that is '-'.  An older file is gone if this fails."""
    prepare([output], [name for name in (*given.names, given.source) if name is not None])
    text = given.stated()[1].vnnlib()
    if output == "-":
        say_document(text)
    else:
        write_whole(output, text)


def given_by(net: str, source: str, label: int, **ball: Any) -> GivenRobustness:
    """The points near the array in the file `source` that `ball` (eps, norm, mean, std, clip) describes."""
    from verifier.loading import GivenRobustness
    from verifier.property.robustness import LocalRobustness, Scaling

    scaling = Scaling(ball["mean"].split(","), ball["std"].split(","))
    clip = tuple(ball["clip"]) if ball["clip"] else None
    near = LocalRobustness(load_array(source), label, 0, ball["eps"], clip, scaling, ball["norm"])
    return GivenRobustness(net, near, source)
