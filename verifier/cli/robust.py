"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from verifier.cli.options import Common, common, outputs, start_logging
from verifier.errors import InputError
from verifier.output import prepare, say_document, write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from verifier.network.models.onnx import OnnxModel
    from verifier.property.robustness import LocalRobustness


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
    from verifier.property.robustness import LocalRobustness, Scaling

    model = load_onnx(net)
    scaling = Scaling(ball["mean"].split(","), ball["std"].split(","))
    centre = _centre(source, model)
    clip = tuple(ball["clip"]) if ball["clip"] else None
    found = LocalRobustness(centre, label, model.n_out, ball["eps"], clip, scaling)
    text = found.vnnlib()
    own = _own_class(model, LocalRobustness(centre, label, model.n_out, 0.0, None, scaling))
    if own != label:
        logging.getLogger(__name__).warning(
            "%s: the network's own class at the input is %d, not %d", source, own, label
        )
    return text


def _centre(source: str, model: OnnxModel) -> NDArray[Any]:
    """The array of the file, in the shape of the network."""
    from verifier.property.arrays import check_shape

    centre = _load(source)
    try:
        check_shape(centre.shape, model.input_shape)
    except InputError as error:
        raise error.located(source)  # noqa: B904 (the same error, with its file)
    return centre.reshape(model.input_shape)


def _load(source: str) -> NDArray[Any]:
    """The array of an `.npy` file, or the only one of an `.npz` file."""
    import zipfile
    import zlib

    import numpy as np

    try:
        with open(source, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            names = found.files
            if len(names) == 1:
                return np.asarray(found[names[0]])
    except OSError as error:
        raise InputError(f"the input cannot be read: {error.strerror or error}", source) from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError("the input is not a NumPy file of numbers", source) from error
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    raise InputError(f"the file holds {len(names)} arrays ({listed}); one is expected", source)


def _own_class(model: OnnxModel, centre: LocalRobustness) -> int:
    import numpy as np

    x = np.array([float(low) for low, _ in centre.bounds()], np.float32)
    return int(np.argmax(model.run(x)))
