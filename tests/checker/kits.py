"""The checker as it is, and copies of it with one mistake each: what judges right must also see what is wrong."""

from __future__ import annotations

import importlib
import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifier.checker


@dataclass(frozen=True)
class Kit:
    """A package that is the checker."""

    name: str

    def __getattr__(self, module: str) -> Any:
        """One of its modules."""
        return importlib.import_module(f"{self.name}.{module}")

    def walk(self, net: Any, clauses: Any, body: bytes, exact: bool = False) -> Any:
        """Over the bytes of a proof about a network and clauses that this kit has read."""
        return self.tree.Walk(self.proving.Setting(net, clauses, exact), self.stream.Stream(io.BytesIO(body)))


KIT = Kit(verifier.checker.__name__)


@dataclass(frozen=True)
class Mistake:
    """What stands in a file, and what stands there in the copy."""

    file: str
    right: str
    wrong: str


@contextmanager
def mistaken(folder: Path, mistake: Mistake) -> Iterator[Kit]:
    """A copy of the checker, in a folder of its own."""
    name = "mistaken"
    shutil.copytree(Path(verifier.checker.__path__[0]), folder / name)
    path = folder / name / mistake.file
    source = path.read_text()
    assert source.count(mistake.right) == 1, f"'{mistake.right}' is not in {mistake.file} once"
    path.write_text(source.replace(mistake.right, mistake.wrong))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield Kit(name)
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            del sys.modules[module]
