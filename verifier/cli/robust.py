"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.ball import Lists, neighbourhood
from verifier.cli.options import Common, common, outputs, start_logging
from verifier.output import prepare, say_document, write_whole

if TYPE_CHECKING:
    from verifier.loading import GivenRobustness


@click.command(cls=Lists)
@click.argument("net")
@click.option("--input", "source", required=True, metavar="X.npy", help="The input, before normalisation.")
@click.option("--label", type=int, required=True, metavar="K", help="The class that must win.")
@click.option("--eps", metavar="E", help="The radius, before normalisation; 8/255 is understood.")
@click.option(
    "--patch", nargs=2, type=click.IntRange(min=1), metavar="H W", help="Instead of --eps: H x W pixels may change."
)
@click.option(
    "--at", nargs=2, type=click.IntRange(min=0), metavar="I J", help="Row and column of the patch, from 0; else any."
)
@neighbourhood
@click.option("-o", "--output", metavar="P.vnnlib", help="Where the property goes; '-' is stdout.")
@click.option("--verify", "decide", is_flag=True, help="Decide the property; the answer is as of `verify NET PROP`.")
@outputs
@common
def robust(net: str, output: str | None, decide: bool, **options: Any) -> int:
    """Write or decide the property that all inputs near X have class K.

    With -o it is written as VNN-LIB, with --verify it is decided.  A ball in the norm 2 or 1 has no form in VNN-LIB
    1.0, whose input sets are boxes; --verify decides it without a file.

    With --patch the pixels of a rectangle take any values of --clip, in all channels, and all others stay as they are:
    --at one place, or at every place, with a box for each.
    """
    names = ("source", "label", "eps", "patch", "at", "norm", "mean", "std", "clip")
    ball = {name: options.pop(name) for name in names}
    _check_change(ball)
    _check(output, decide, ball["norm"], options)
    if not decide:
        assert output is not None
        start_logging(options["quiet"], options["verbose"])
        Common.of(options)
        write_property(output, net, ball)
        return 0
    from verifier.cli.session import Session

    with Session(net, output, options) as session:
        request = session.begin() if output is not None else session.begin_without_file(lambda: given_by(net, **ball))
        from verifier import pipeline

        if output is not None:
            with session.status.phase("load"):
                write_property(output, net, ball)
        session.answer = pipeline.decide(request, session.status)
    return session.code


def _check_change(ball: Mapping[str, Any]) -> None:
    """Raises UsageError unless a ball or a patch is described, and not both."""
    if ball["patch"] is None:
        if ball["at"] is not None:
            raise click.UsageError("--at is the place of a patch: it needs --patch H W")
        if ball["eps"] is None:
            raise click.UsageError("how may the input change? Give --eps E, or --patch H W with --clip LO HI")
        return
    if ball["eps"] is not None or ball["norm"] != "inf":
        raise click.UsageError("--patch: a patch has no radius and no norm; leave out --eps and --norm")
    if ball["clip"] is None:
        raise click.UsageError("--patch needs --clip LO HI, the range of values that its pixels take")


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


def write_property(output: str, net: str, ball: Mapping[str, Any]) -> None:
    """Writes the property to a file, or to stdout if that is '-'.  An older file is gone if this fails."""
    prepare([output], [net, ball["source"]])
    text = given_by(net, **ball).stated()[1].vnnlib()
    if output == "-":
        say_document(text)
    else:
        write_whole(output, text)


def given_by(net: str, source: str, label: int, **ball: Any) -> GivenRobustness:
    """What the array in the file `source` may become; `ball` holds eps and norm or patch and at, mean, std, clip."""
    from verifier.loading import GivenRobustness
    from verifier.property.patches import perturbed
    from verifier.robustness.images import load_array
    from verifier.robustness.neighbourhood import Neighbourhood

    around = Neighbourhood.of(ball["norm"], ball["clip"], ball["mean"], ball["std"])
    scale, patch = (around.clip, around.scaling), (ball["patch"], ball["at"])
    near = perturbed(load_array(source), label, (ball["eps"], around.norm), patch, scale)
    return GivenRobustness(net, near, source)
