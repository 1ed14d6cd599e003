"""Lists of instances, and lists of verdicts that are known for them, as VNN-COMP writes them."""

from __future__ import annotations

import csv
import fnmatch
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifier.errors import InputError
from verifier.files import blamed, stored
from verifier.naming import paths_of, with_paths
from verifier.result.verdict import Verdict

LIST = "instances.csv"

Names = tuple[str, str, str]
"""Category, network and property as the list names them: what two checkouts of one benchmark have in common."""

Files = tuple[str, str]
"""Network and property as resolved paths."""


Key = tuple[str, Files]
"""Category and files: what makes two lines of one folder speak about the same instance."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An instance by its names in a list and by its files."""

    category: str
    onnx: str  # as the list names it
    vnnlib: str
    network: str  # as it is opened
    prop: str

    @property
    def names(self) -> Names:
        return (self.category, self.onnx, self.vnnlib)

    @property
    def files(self) -> Files:
        return (self.network, self.prop)

    @property
    def key(self) -> Key:
        return (self.category, self.files)


@dataclass(frozen=True, slots=True)
class Instance(Listed):
    """One line of a list.  `network` and `prop` are resolved paths, of the `.gz` file where only that is there."""

    timeout: float | None = None


def read_instances(sources: Iterable[str], timeout: float | None = None) -> tuple[Instance, ...]:
    """The instances of csv files, or of folders that hold an `instances.csv`, each once, in the order of the lists.

    `timeout` replaces the limits of the lists.  Raises InputError for a list that cannot be read.  A network or a
    property that is not there is no error yet: it will be that instance's result.
    """
    found: dict[Key, Instance] = {}
    for source in sources:
        for instance in _read(_list_of(source), timeout):
            found.setdefault(instance.key, instance)  # of a repeated one, the first counts
    return tuple(found.values())


def select(instances: Sequence[Instance], pattern: str | None = None, limit: int | None = None) -> tuple[Instance, ...]:
    """Those whose network or property, by path or by file name, matches the pattern; of these the first `limit`."""

    def matches(instance: Instance) -> bool:
        named = (instance.onnx, instance.vnnlib)
        words = (*named, *(os.path.basename(path) for name in named for path in paths_of(name)))
        return pattern is None or any(fnmatch.fnmatchcase(word, pattern) for word in words)

    return tuple(filter(matches, instances))[:limit]


def read_expected(paths: Iterable[str]) -> dict[Files, Verdict]:
    """The known verdicts of csv files with the columns onnx, vnnlib and expected, by resolved paths.

    Verdicts other than `sat` and `unsat` say nothing and are left out.  Raises InputError for two that contradict
    each other.
    """
    known: dict[Files, Verdict] = {}
    for path in paths:
        for line, row in _rows(path):
            if line == 1:
                columns = {name: i for i, name in enumerate(row)}
                if not {"onnx", "vnnlib", "expected"} <= columns.keys():
                    raise InputError("a first line with the columns onnx, vnnlib and expected is missing", path, 1)
                continue
            if len(row) <= max(columns[name] for name in ("onnx", "vnnlib", "expected")):
                raise InputError("this line has too few columns", path, line)
            verdict = _verdict(row[columns["expected"]], path, line)
            files = _files(path, row[columns["onnx"]], row[columns["vnnlib"]])
            if verdict.decided and known.setdefault(files, verdict) is not verdict:
                raise InputError("the opposite verdict is expected elsewhere", path, line)
    return known


def _list_of(source: str) -> str:
    path = Path(source)
    if not path.is_dir():
        return source
    if (path / LIST).is_file():
        return str(path / LIST)
    below = sorted(p.parent.name for p in path.glob(f"*/{LIST}"))
    hint = f"; there is one in {', '.join(below[:3])}{', ...' if len(below) > 3 else ''} below it" if below else ""
    raise InputError(f"there is no {LIST} in this folder{hint}", source)


def _read(path: str, timeout: float | None) -> Iterator[Instance]:
    category = _category(path)
    for line, row in _rows(path):
        if line == 1 and row[0].lower() == "onnx":  # a heading, which some lists have
            continue
        if len(row) < 2 or not (row[0] and row[1]):
            raise InputError("a line of a list reads onnx,vnnlib,timeout", path, line)
        limit = _limit(row[2], path, line) if len(row) > 2 and row[2] else None
        network, prop = _files(path, row[0], row[1])
        yield Instance(category, row[0], row[1], network, prop, limit if timeout is None else timeout)


def _category(path: str) -> str:
    """The folder of the list; VNN-COMP 2026 has folders 1.0 and 2.0 inside of it."""
    folder = Path(path).resolve().parent
    return folder.parent.name if re.fullmatch(r"\d+\.\d+", folder.name) else folder.name


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    try:
        with blamed("the list cannot be read", path), open(path, newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            for row in reader:
                fields = [field.strip() for field in row]
                if any(fields):
                    yield reader.line_num, fields
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError("the list is not a csv file", path) from error


def _limit(text: str, path: str, line: int) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isnan(seconds) or seconds < 0:
        raise InputError(f"the time limit '{text}' is not a number of seconds", path, line)
    return None if math.isinf(seconds) else seconds


def _verdict(text: str, path: str, line: int) -> Verdict:
    try:
        return Verdict(text.lower() or "unknown")
    except ValueError:
        raise InputError(f"'{text}' is not a verdict; sat, unsat and unknown are", path, line) from None


def _files(path: str, onnx: str, vnnlib: str) -> Files:
    folder = os.path.dirname(path)

    def resolved(name: str) -> str:
        return os.path.realpath(stored(os.path.join(folder, name)))

    return with_paths(onnx, resolved), resolved(vnnlib)
