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
@click.option("--eps", required=True, metavar="E", help="The radius, before normalisation; 8/255 is understood.")
@neighbourhood
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
    from verifier.robustness.images import load_array
    from verifier.robustness.neighbourhood import Neighbourhood

    around = Neighbourhood.of(ball["norm"], ball["clip"], ball["mean"], ball["std"])
    return GivenRobustness(net, around.ball(load_array(source), label, 0, ball["eps"]), source)
