"""The commands that end in a verdict.  What they need is imported when they run: `--help` is fast."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common, instance, instance_paths, outputs


@click.command("verify", hidden=True)
@instance
@outputs
@click.option("--trace", metavar="FILE", help="Write the search tree as JSON lines.")
@common
def decide(files: tuple[str, ...], networks: tuple[str, ...], trace: str | None, **options: Any) -> int:
    """Decide whether the network NET has the property PROP.

    The short form `verify NET PROP` is the same.  Instead of NET, `--network NAME=NET` is understood.
    """
    paths = instance_paths(files, networks)
    from verifier.cli.conduct import Request, conduct, deciding

    return conduct(Request.of(*paths, options), deciding(*paths, trace))


@click.command()
@instance
@outputs
@common
def attack(files: tuple[str, ...], networks: tuple[str, ...], **options: Any) -> int:
    """Look for a counterexample only: exit code 1 with a witness, 3 without."""
    paths = instance_paths(files, networks)
    from verifier.cli.conduct import Request, attacking, conduct

    return conduct(Request.of(*paths, options), attacking(*paths))
