"""`verify check`: accept or reject a proof, or all proofs of a batch, by the independent checker."""

from __future__ import annotations

import json as text
import sys
from typing import Any

import click

from verifier.output import say, tell, write_whole


@click.command()
@click.argument("files", nargs=-1, metavar="NET PROP FILE")
@click.option("--batch", metavar="DIR", help="Check all proofs of the batch that `verify batch --out DIR` ran.")
@click.option("--exact", is_flag=True, help="Confirm every bound in rational arithmetic; slow.")
@click.option("--json", metavar="FILE", help="Write the judgement as JSON; '-' is stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Of a batch: only what is not accepted, and the last line.")
def check(files: tuple[str, ...], batch: str | None, exact: bool, json: str | None, quiet: bool) -> int:
    """Accept or reject a proof that a search has written.

    The checker shares no code with the search and knows no tolerance.  Exit code 0: accepted, 1: rejected, with the
    node and the reason, 2: a file cannot be read.

    With --batch every `unsat` needs a proof, and each gets a line of DIR/checks.jsonl.  Exit code 0: all accepted,
    1: one rejected or missing, 2: one that cannot be read.
    """
    if len(files) != (3 if batch is None else 0):
        wanted = "a network, a property and a proof are expected" if batch is None else "--batch takes no files"
        raise click.UsageError(f"{wanted}, not {len(files)} file(s)")
    if batch is not None:
        return _batch(batch, exact, json, quiet)
    return _single(files, exact, json)


def _single(files: tuple[str, ...], exact: bool, json: str | None) -> int:
    from verifier.checker.check import check as judged
    from verifier.checker.progress import Progress

    net, prop, proof = files
    with Progress(sys.stderr) as progress:
        found = judged(net, prop, proof, exact, progress.tell)
    _answer(str(found), {"proof": proof, **found.record}, json)
    return found.exit_code


def _batch(folder: str, exact: bool, json: str | None, quiet: bool) -> int:
    from verifier.batch.checks import Standing, check_proof, exit_code, kept, last_line, proved_of
    from verifier.checker.progress import Progress

    records = proved_of(folder)
    found = []
    with kept(folder) as keep:
        for record in records:
            with Progress(sys.stderr) as progress:
                one = check_proof(record, exact, progress.tell)
            keep(one)
            found.append(one)
            if not quiet:
                tell(f"[{len(found)}/{len(records)}] {one.seconds:8.2f} s  {one}")
    bad = [str(one) for one in found if one.standing is not Standing.ACCEPTED]
    lines = [*bad, last_line(found, len(records))]
    code = exit_code(found)
    _answer("\n".join(lines), {"exit_code": code, "checks": [text.loads(one.line) for one in found]}, json)
    return code


def _answer(line: str, record: dict[str, Any], json: str | None) -> None:
    """The answer on stdout, in words or as JSON, and in the file."""
    if json == "-":
        say(text.dumps(record))
        return
    say(line)
    if json is not None:
        write_whole(json, text.dumps(record) + "\n")
