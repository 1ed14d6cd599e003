"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.ball import Lists, neighbourhood
from verifier.cli.options import Common, common, outputs, start_logging
from verifier.errors import InputError
from verifier.output import prepare, say_document, write_whole


@click.command(cls=Lists)
@click.argument("net")
@click.option("--input", "source", required=True, metavar="X.npy", help="The input, before normalisation.")
@click.option("--label", type=int, required=True, metavar="K", help="The class that must win.")
@click.option("--eps", required=True, metavar="E", help="The radius, before normalisation; 8/255 is understood.")
@neighbourhood
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
    if not decide:
        start_logging(options["quiet"], options["verbose"])
        Common.of(options)
        write_property(output, net, **ball)
        return 0
    from verifier.cli.session import Session

    with Session(net, output, options) as session:
        request = session.begin()
        from verifier import pipeline

        with session.status.phase("load"):
            write_property(output, net, **ball)
        session.answer = pipeline.decide(request, session.status)
    return session.code


def write_property(output: str, net: str, source: str, label: int, **ball: Any) -> None:
    """Writes `property_text` to a file, or to stdout if that is '-'.  An older file is gone if this fails."""
    prepare([output], [net, source])
    text = property_text(net, source, label, **ball)
    if output == "-":
        say_document(text)
    else:
        write_whole(output, text)


def property_text(net: str, source: str, label: int, **ball: Any) -> str:
    """VNN-LIB text of the ball `ball` (eps, norm, mean, std, clip) around the array in the file `source`.

    Warns if the network does not give the centre the class `label`: then the property cannot hold.
    """
    import logging

    from verifier.network.models.onnx import load_onnx
    from verifier.property.arrays import check_shape
    from verifier.robustness.images import classes, load_array
    from verifier.robustness.neighbourhood import Neighbourhood

    centre = load_array(source)
    model = load_onnx(net)
    try:
        check_shape(centre.shape, model.input_shape)
    except InputError as error:
        raise error.located(source)  # noqa: B904 (the same error, with its file)
    centre = centre.reshape(model.input_shape)
    around = Neighbourhood.of(ball["norm"], ball["clip"], ball["mean"], ball["std"])
    text = around.ball(centre, label, model.n_out, ball["eps"]).vnnlib()
    own = int(classes(model, centre[None], around.scaling)[0])
    if own != label:
        logging.getLogger(__name__).warning(
            "%s: the network's own class at the input is %d, not %d", source, own, label
        )
    return text
