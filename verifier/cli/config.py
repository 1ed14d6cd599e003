"""`verify config`: the presets, what they come to, and all options there are."""

from __future__ import annotations

import click

from verifier.cli.options import preset_names, start_logging
from verifier.errors import InputError
from verifier.output import say


@click.group(no_args_is_help=True)
def config() -> None:
    """List presets, show one in full, or list all options.

    A YAML file for `--config` holds the keys that differ; `extends: auto` begins with a preset or another file.
    """


@config.command("list")
def list_presets() -> int:
    """The presets that `--config` knows, each with one line."""
    from verifier.config import summaries

    found = summaries()
    width = max(map(len, found))
    say("\n".join(f"{name:<{width}}  {text}" for name, text in found.items()))
    return 0


@config.command()
@click.argument("name", metavar="NAME_OR_PATH", default="auto", shell_complete=preset_names)
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Override one key; repeatable.")
def show(name: str, overrides: tuple[str, ...]) -> int:
    """A preset or a YAML file with every option written out, as YAML."""
    start_logging(False, False)
    from verifier.config import load_config
    from verifier.config.describe import yaml_text

    say(yaml_text(load_config(name, overrides).resolved()).rstrip("\n"))
    return 0


@config.command()
@click.argument("prefix", required=False, default="")
@click.option("--schema", "as_schema", is_flag=True, help="The JSON schema instead, for editors of YAML files.")
def options(prefix: str, as_schema: bool) -> int:
    """All keys, or those that begin with PREFIX: kind, default, and a line about each.

    In lists, N is the number of an item, as in `--set search.tiers.0.iterations=20`.
    """
    if as_schema:
        import json

        from verifier.config import schema

        say(json.dumps(schema(), indent=2))
        return 0
    from verifier.config.describe import keys

    found = [key for key in keys() if key.name.startswith(prefix)]
    if not found:
        raise InputError(f"no option begins with '{prefix}'; the sections are falsify, bounding, search, plugins")
    blocks = []
    for key in found:
        of = "" if key.method is None else f"  (method: {key.method})"
        blocks.append(f"{key.name}{of}\n    {key.text}\n    {key.kind}; default {key.default}")
    say("\n".join(blocks))
    return 0
