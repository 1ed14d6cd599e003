"""Every global name that the package uses is defined, and no two classes share one.

Linters are told to pass over unknown names, because the axes of shapes in annotations look like such names.
"""

from __future__ import annotations

import ast
import builtins
import dis
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MODULE = {"__file__", "__name__", "__doc__", "__spec__", "__path__", "__package__", "__qualname__", "__module__"} | {
    "__annotations__"
}


def code_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_of(constant)


def names(code: types.CodeType, *operations: str) -> set[str]:
    instructions = (i for part in code_of(code) for i in dis.get_instructions(part))
    return {i.argval for i in instructions if i.opname in operations}


def undefined(text: str) -> set[str]:
    code = compile(text, "module", "exec", dont_inherit=True)
    known = names(code, "STORE_NAME", "STORE_GLOBAL") | set(dir(builtins)) | MODULE
    return names(code, "LOAD_NAME", "LOAD_GLOBAL") - known


def test_every_global_name_is_defined(root: Path) -> None:
    found = {str(path.relative_to(root)): undefined(path.read_text()) for path in (root / "verifier").rglob("*.py")}
    assert {path: unknown for path, unknown in found.items() if unknown} == {}


def test_an_undefined_name_is_seen() -> None:
    text = "from __future__ import annotations\ndef f(x: Float['D S']) -> None:\n    return lambda: box + len(x)\n"
    assert undefined(text) == {"box"}


SHARED = {"Solver"}
"""Names that still stand for two classes; the list only gets shorter."""


def test_no_two_classes_share_a_name(root: Path) -> None:
    paths = (path for path in (root / "verifier").rglob("*.py") if "checker" not in path.parts)  # on its own on purpose
    trees = (ast.parse(path.read_text()) for path in paths)
    counts = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in counts.items() if count > 1} <= SHARED
