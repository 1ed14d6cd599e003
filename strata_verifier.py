"""The command `verify`, behind a name that nobody else uses.

The package is called `verifier`, which is a likely name for a script of the user's own.  One that comes first on the
path would be run in its place; here that is noticed and said.  `python -m strata_verifier` does the same.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def main() -> None:
    """Runs the command line of the package that lies beside this file; ends the process."""
    other = shadow()
    if other is not None:
        print(
            f"error: {other} hides Strata's package 'verifier', which is in {_home()}: rename it, or take its folder "
            "off PYTHONPATH",
            file=sys.stderr,
        )
        sys.exit(2)
    from verifier.__main__ import main as run

    run()


def shadow() -> str | None:
    """The file or folder that `import verifier` would load in the place of Strata's; None if it loads the right one."""
    spec = PathFinder.find_spec("verifier")
    own = os.path.join(_home(), "verifier", "__init__.py")
    found = None if spec is None else spec.origin
    return None if found is None or os.path.realpath(found) == os.path.realpath(own) else found


def _home() -> str:
    return os.path.dirname(os.path.abspath(__file__))


if __name__ == "__main__":
    main()
