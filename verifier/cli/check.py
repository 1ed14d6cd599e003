"""`verify check`: accept or reject a proof, by the independent checker."""

from __future__ import annotations

import json as text
import sys
from typing import Any

import click

from verifier.output import say, write_whole


@click.command()
@click.argument("net")
@click.argument("prop")
@click.argument("proof", metavar="FILE")
@click.option("--exact", is_flag=True, help="Confirm every bound in rational arithmetic; slow.")
@click.option("--json", metavar="FILE", help="Write the judgement as JSON; '-' is stdout.")
def check(net: str, prop: str, proof: str, exact: bool, json: str | None) -> int:
    """Accept or reject a proof that a search has written.

    The checker shares no code with the search and knows no tolerance.  Exit code 0: accepted, 1: rejected, with the
    node and the reason, 2: a file cannot be read.
    """
    from verifier.checker.check import check as judged
    from verifier.checker.progress import Progress

    with Progress(sys.stderr) as progress:
        found = judged(net, prop, proof, exact, progress.tell)
    record: dict[str, Any] = {"proof": proof, **found.record}
    if json == "-":
        say(text.dumps(record))
    else:
        say(str(found))
        if json is not None:
            write_whole(json, text.dumps(record) + "\n")
    return found.exit_code
