"""`verify show`: what is inside of a network and a property."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common


@click.command()
@click.argument("net")
@click.argument("prop", required=False)
@common
def show(net: str, prop: str | None, **options: Any) -> int:
    """Show layers, operators, input box, clauses, and what is unsupported."""
    from verifier.cli.common import Common, start_logging
    from verifier.streams import say

    start_logging(options["quiet"], options["verbose"])
    Common.of(options)
    from verifier.cli.describe import network_lines, property_lines
    from verifier.network.models.onnx import load_onnx
    from verifier.property.vnnlib import load_property

    lines = network_lines(load_onnx(net))
    if prop is not None:
        lines += ["", *property_lines(prop, load_property(prop))]
    say("\n".join(lines))
    return 0
