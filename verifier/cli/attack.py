"""`verify attack`: falsification only."""

from __future__ import annotations

from typing import Any

import click

from verifier.cli.options import common, instance, instance_paths, outputs


@click.command(short_help="Look for a counterexample only.")
@instance
@outputs
@common
def attack(files: tuple[str, ...], networks: tuple[str, ...], **options: Any) -> int:
    """Look for a counterexample only: exit code 1 with a witness, 3 without."""
    paths = instance_paths(files, networks)
    from verifier.cli.session import Session

    with Session(*paths, options) as session:
        request = session.begin()
        from verifier import pipeline

        session.answer = pipeline.attack(request, session.status)
    return session.code
