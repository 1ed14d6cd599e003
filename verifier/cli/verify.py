"""`verify NET PROP`: decides one instance.  What commands need is imported when they run: `--help` is fast."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.options import common, instance, instance_paths, outputs

if TYPE_CHECKING:
    from verifier.result.result import Result


class Unnamed(click.Context):
    """The context of a command whose name need not be given: usage lines leave it out."""

    @property
    def command_path(self) -> str:
        return super().command_path.removesuffix(f" {self.info_name}")


class Short(click.Command):
    """`verify NET PROP`, which is `verify verify NET PROP` in full."""

    context_class = Unnamed


@click.command(hidden=True, cls=Short)
@instance
@outputs
@click.option("--trace", metavar="FILE", help="Write the search tree as JSON lines.")
@click.option("--proof", metavar="FILE", help="Write the proof of an `unsat`, for `verify check`.")
@click.option("--trim", is_flag=True, help="Leave out splits that the proof does not lean on; takes longer.")
@click.option("--resume", metavar="DIR", help="Keep checkpoints of the search there, and go on from one that is there.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to search. [default: local]"
)
@click.option("--address", metavar="HOST:PORT", help="The Ray cluster; without it Ray is started on this machine.")
@common
def verify(files: tuple[str, ...], networks: tuple[str, ...], **options: Any) -> int:
    """Decide whether the network NET has the property PROP.

    The short form `verify NET PROP` is the same.  Instead of NET, `--network NAME=NET` is understood.  A property of
    several networks takes a file for each: `verify f=NET g=NET PROP`; one file is enough if they are all equal.
    """
    paths = instance_paths(files, networks)
    gc.disable()  # libraries make a million objects when they are loaded, and hardly any garbage
    from verifier.cli.session import Session

    trace, proof, trim, resume = (options.pop(name) for name in ("trace", "proof", "trim", "resume"))
    ray, address = options.pop("engine") == "ray", options.pop("address")
    with Session(*paths, options, proof) as session:
        request = session.begin(trace, proof, trim, resume, ray, address)
        from verifier.pipeline import decide

        gc.enable()
        session.answer = decide(request, session.status)
    if resume is not None and session.code in (0, 1) and not _lacks_proof(session.answer, proof):
        from verifier.search.checkpoint import forget

        forget(resume)  # the answer is out: nobody will go on
    return session.code


def _lacks_proof(answer: Result | None, proof: str | None) -> bool:
    """Whether a proof was asked for that could not be written: another run may, where there is room for it."""
    return proof is not None and answer is not None and answer.verdict.value == "unsat" and answer.proof is None
