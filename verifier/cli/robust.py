"""`verify robust`: local robustness as a VNN-LIB file, and decided if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.ball import Lists, neighbourhood
from verifier.cli.options import Common, common, outputs, start_logging
from verifier.errors import InputError
from verifier.output import prepare, say_document, write_bytes, write_whole

if TYPE_CHECKING:
    from verifier.loading import GivenRobustness
    from verifier.property.changes import Change

CHANGE = ("eps", "norm", "patch", "at", "brightness", "contrast", "clip")


@click.command(cls=Lists, short_help="Write or decide that all inputs near one have its class.")
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
@click.option("--brightness", metavar="B", help="Instead of --eps: what is added to all pixels, at most.")
@click.option("--contrast", metavar="C", help="The same as a share: pixels are multiplied by 1 - C to 1 + C.")
@neighbourhood
@click.option("-o", "--output", metavar="P.vnnlib", help="Where the property goes; '-' is stdout.")
@click.option(
    "--composed", metavar="N.onnx", help="Where NET behind --brightness and --contrast goes, which -o is about."
)
@click.option("--image", metavar="FILE", help="Write the image of a `sat` by --brightness or --contrast: .npy or .png.")
@click.option("--verify", "decide", is_flag=True, help="Decide the property; the answer is as of `verify NET PROP`.")
@outputs
@common
def robust(net: str, output: str | None, decide: bool, **options: Any) -> int:
    """Write or decide the property that all inputs near X have class K.

    With -o it is written as VNN-LIB, with --verify it is decided.  A ball in the norm 2 or 1 has no form in VNN-LIB
    1.0, whose input sets are boxes; --verify decides it without a file.

    With --patch the pixels of a rectangle take any values of --clip, in all channels, and all others stay as they are:
    --at one place, or at every place, with a box for each.

    With --brightness and --contrast the image x becomes (1 + c) x + b, cut off at --clip if that is given, for all b up
    to B and c up to C.  The property is then about the two inputs b and c of the network that --composed writes.
    """
    from verifier.property.changes import Change

    change = Change(**{name: options.pop(name) for name in CHANGE})
    files = {name: options.pop(name) for name in ("composed", "image")}
    _check(change, output, decide, files, options)
    asked = RobustQuestion(net, change, **{name: options.pop(name) for name in ("source", "label", "mean", "std")})
    if not decide:
        start_logging(options["quiet"], options["verbose"])
        Common.of(options)
        assert output is not None
        asked.write(output, files["composed"])
        return 0
    from verifier.cli.session import Session

    with Session(net, output, options, image=files["image"]) as session:
        without = change.lit or output is None
        request = session.begin_without_file(asked.given) if without else session.begin()
        from verifier import pipeline

        if output is not None:
            with session.status.phase("load"):
                asked.write(output, files["composed"])
        session.answer = pipeline.decide(request, session.status)
    return session.code


def _check(
    change: Change, output: str | None, decide: bool, files: Mapping[str, str | None], options: Mapping[str, Any]
) -> None:
    """Raises UsageError for options that do not go together."""
    try:
        change.check("--")
    except InputError as error:
        raise click.UsageError(error.message) from None
    if output is None and not decide:
        raise click.UsageError("nothing to do: give -o P.vnnlib for the property, --verify for the answer, or both")
    if output is not None and change.norm != "inf":
        raise click.UsageError(
            f"--norm {change.norm}: a ball has no form in VNN-LIB 1.0, whose input sets are boxes (that of norm 1 is "
            "linear only with further variables); leave out -o, --verify decides it without a file"
        )
    if decide and output == "-":
        raise click.UsageError("with --verify stdout carries the answer: -o needs a file for the property")
    if not decide and (unused := [name for name in ("json", "result", "counterexample") if options[name]]):
        raise click.UsageError(f"--{unused[0]} is for the answer: it needs --verify")
    _check_light(change, output, decide, files)


def _check_light(change: Change, output: str | None, decide: bool, files: Mapping[str, str | None]) -> None:
    """The same for what only other light needs."""
    composed, image = files["composed"], files["image"]
    if not change.lit and (unused := [name for name, path in files.items() if path is not None]):
        raise click.UsageError(f"--{unused[0]} needs --brightness or --contrast: nothing else makes another network")
    if change.lit and (output is None) != (composed is None):
        raise click.UsageError("-o P.vnnlib and --composed N.onnx go together: the property is about that network")
    if image is not None and not (decide and image.lower().endswith((".npy", ".png"))):
        raise click.UsageError("--image is for the answer: it needs --verify, and a file that ends in .npy or .png")


@dataclass(frozen=True)
class RobustQuestion:
    """What may become of an input that lies in a file."""

    net: str
    change: Change
    source: str
    label: int
    mean: str
    std: str

    def given(self) -> GivenRobustness:
        """Reads the input.  Raises InputError if it cannot be used."""
        from verifier.loading import GivenRobustness
        from verifier.property.robustness import Scaling
        from verifier.robustness.images import load_array

        near = self.change.around(load_array(self.source), self.label, Scaling.of(self.mean, self.std))
        return GivenRobustness(self.net, near, self.source)

    def write(self, output: str, composed: str | None) -> None:
        """Writes the property to a file, or to stdout if that is '-', and the network that it is about, if it is new.

        Older files are gone if this fails.
        """
        from verifier.network.models.onnx import OnnxModel

        prepare([output, composed], [self.net, self.source])
        model, task = self.given().stated()
        text = task.vnnlib()
        if composed is not None:
            whole = task.fronted(model)
            assert isinstance(whole, OnnxModel)
            write_bytes(composed, whole.data)
        if output == "-":
            say_document(text)
        else:
            write_whole(output, text)
