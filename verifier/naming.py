"""How several networks are given in the place of one: as VNN-COMP writes them, `[('f', 'a.onnx'), ('g', 'b.onnx')]`.

On the command line `f=a.onnx g=b.onnx` and `--network f=a.onnx` say the same; all of it becomes this text, which
stands wherever a single path would.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from verifier.errors import InputError

Pairs = tuple[tuple[str, str], ...]


def networks_of(text: str) -> Pairs | None:
    """The names and paths of several networks; None if the text is the path of one.  Raises InputError."""
    if not text.lstrip().startswith("[("):
        return None
    try:
        found = ast.literal_eval(text.strip())
        pairs = tuple((name, path) for name, path in found)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pairs = ()
    if not pairs or not all(isinstance(word, str) and word for pair in pairs for word in pair):
        raise InputError(f"several networks are given as [('f', 'a.onnx'), ('g', 'b.onnx')], not as {text[:80]}")
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"the network '{next(n for n in names if names.count(n) > 1)}' is given twice")
    return pairs


def text_of(pairs: Sequence[tuple[str, str]]) -> str:
    """The text for several networks."""
    return repr([(name, path) for name, path in pairs])


def paths_of(text: str) -> tuple[str, ...]:
    """All files of what stands in the place of a network."""
    pairs = networks_of(text)
    return (text,) if pairs is None else tuple(path for _, path in pairs)


def with_paths(text: str, change: Callable[[str], str]) -> str:
    """The same with every path changed."""
    pairs = networks_of(text)
    return change(text) if pairs is None else text_of([(name, change(path)) for name, path in pairs])
