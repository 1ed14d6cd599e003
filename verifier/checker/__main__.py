"""`python -m checker NET PROP PROOF [--exact] [--json FILE]`: accepted 0, rejected 1, cannot be read 2."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .check import check
from .progress import Progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="checker", description="Accepts or rejects a proof of unsat.")
    parser.add_argument("network")
    parser.add_argument("property")
    parser.add_argument("proof")
    parser.add_argument("--exact", action="store_true", help="confirm every bound in rational arithmetic")
    parser.add_argument("--json", metavar="FILE", help="write the judgement as JSON")
    given = parser.parse_args()
    with Progress(sys.stderr) as progress:
        found = check(given.network, given.property, given.proof, given.exact, progress.tell)
    print(found)
    if given.json:
        Path(given.json).write_text(json.dumps({"proof": given.proof, **found.record}) + "\n")
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
