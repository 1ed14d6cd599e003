"""`verify template`: common questions about two copies of a network, as VNN-LIB 2.0 files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verifier.errors import InputError
from verifier.output import prepare, say_document, write_whole

if TYPE_CHECKING:
    from verifier.property.templates import Pair, Template

F = TypeVar("F", bound=Callable[..., Any])


def pair_options(command: F) -> F:
    """NET, its box and where the property goes."""
    options = (
        click.argument("net"),
        click.option("--lower", required=True, metavar="L.npy", help="The lower end of the input box."),
        click.option("--upper", required=True, metavar="U.npy", help="Its upper end."),
        click.option("-o", "--output-file", required=True, metavar="P.vnnlib", help="'-' is stdout."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(short_help="Write common questions as VNN-LIB 2.0.")
def template() -> None:
    """Write common questions as VNN-LIB 2.0: `verify NET P.vnnlib` then decides them.

    They speak of two copies of the network, whose inputs lie in one box and agree but for some entries.  `unsat` says
    that the network is monotone, or that the entries do not matter; `sat` shows two inputs.
    """


@template.command()
@pair_options
@click.option("--input", "entry", type=int, required=True, metavar="I", help="The input that grows, counted from 0.")
@click.option("--output", type=int, default=0, show_default=True, metavar="J", help="The output that must grow.")
@click.option("--decreasing", is_flag=True, help="The output must fall instead.")
@click.option("--step", default="0", metavar="S", help="By how much the input grows at least.")
@click.option("--margin", default="0", metavar="M", help="By how much the output may fall nevertheless.")
def monotone(net: str, lower: str, upper: str, output_file: str, **question: Any) -> int:
    """Output J grows with input I, all else being equal.

    One of --step and --margin must be positive: equal inputs lie on the border of what is unsafe.
    """
    from verifier.property.templates import Monotone

    _write(net, (lower, upper), output_file, lambda pair: Monotone(pair, **question))
    return 0


@template.command()
@pair_options
@click.option("--input", "entries", type=int, multiple=True, required=True, metavar="I", help="Repeatable.")
@click.option("--tolerance", metavar="T", help="No output may change by so much.")
@click.option("--margin", metavar="M", help="The class may not change, if it wins by so much before and after.")
def irrelevant(net: str, lower: str, upper: str, output_file: str, **question: Any) -> int:
    """These inputs must not matter: other values of them, all else being equal, change nothing.

    Either --tolerance or --margin says what a change is.
    """
    from verifier.property.templates import Irrelevant

    _write(net, (lower, upper), output_file, lambda pair: Irrelevant(pair, **question))
    return 0


def _write(net: str, box: tuple[str, str], output: str, ask: Callable[[Pair], Template]) -> None:
    """Writes the property about a network and a box to a file, or to stdout."""
    prepare([output], [net, *box])
    text = ask(_pair(net, *box)).vnnlib()
    if output == "-":
        say_document(text)
    else:
        write_whole(output, text)


def _pair(net: str, lower: str, upper: str) -> Pair:
    import numpy as np

    from verifier.network.models.onnx import load_onnx
    from verifier.property.arrays import box_arrays, check_shape
    from verifier.property.templates import Pair
    from verifier.robustness.images import load_array

    low, high = box_arrays(load_array(lower), load_array(upper))
    model = load_onnx(net, declared=(low.shape,))
    if len(model.input_shapes) > 1 or len(model.output_shapes) > 1:
        raise InputError("templates are for networks with one input and one output tensor", net)
    try:
        check_shape(low.shape, model.input_shape)
    except InputError as error:
        raise error.located(lower)  # noqa: B904 (the same error, with its file)
    kind = "float64" if model.dtype == np.float64 else "float32"
    return Pair(model.input_shape, model.output_shape, low, high, kind)
