"""Draws the tree of a search: verify NET PROP --trace tree.jsonl; python scripts/draw_tree.py tree.jsonl -o tree.png"""

from __future__ import annotations

import sys

import click

from verifier.errors import VerifierError
from verifier.report.tree import draw_tree, read_trace


@click.command()
@click.argument("trace")
@click.option("-o", "--output", default="tree.png", show_default=True, help="A png, svg or pdf file.")
def main(trace: str, output: str) -> None:
    """Size by depth, bounds over time and tiers of the search that wrote TRACE."""
    try:
        tree = read_trace(trace)
        draw_tree(tree, output, f"{trace}: {len(tree.nodes)} domains")
    except VerifierError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
