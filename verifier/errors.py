"""Everything this package raises on purpose.

Each message is one sentence that names the file, line or node at fault.  Time-outs and infeasibility are values,
not exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike


def one_line(what: object) -> str:
    """What an error of another library says, in one line of bounded length."""
    return " ".join(str(what).split())[:300] or type(what).__name__


class VerifierError(Exception):
    """Base of all errors of this package."""


class InputError(VerifierError):
    """A file, a property, a network or an argument cannot be used as given."""

    def __init__(self, message: str, path: str | PathLike[str] | None = None, line: int | None = None) -> None:
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line
        super().__init__(message)

    def __str__(self) -> str:
        where = "" if self.path is None else self.path if self.line is None else f"{self.path}:{self.line}"
        if self.path is None and self.line is not None:
            where = f"line {self.line}"
        return f"{where}: {self.message}" if where else self.message

    def located(self, path: str | PathLike[str]) -> InputError:
        """The same error with the file named, if it was not yet."""
        if self.path is None:
            self.path = str(path)
        return self


class UnsupportedOperator(InputError):
    """A node of the network lies outside of what can be lowered to affine maps and ReLUs."""

    def __init__(
        self,
        node: str,
        op_type: str,
        why: str,
        supported: Iterable[str] = (),
        path: str | PathLike[str] | None = None,
    ) -> None:
        self.node = node
        self.op_type = op_type
        self.supported = tuple(supported)
        hint = "; docs/formats.md lists what is" if self.supported and why.endswith("not known") else ""
        super().__init__(f"node '{node}' of type {op_type} is not supported: {why}{hint}", path)


class TooManyNeurons(UnsupportedOperator):
    """With this node the network has more neurons than can be bounded."""


class NotFinite(InputError):
    """The original network's outputs are no numbers somewhere in the boxes of the property."""


class ConfigError(InputError):
    """A configuration holds an unknown key or a value of the wrong kind; `valid` are the names that there are."""

    def __init__(
        self, message: str, key: str, valid: Iterable[str] = (), path: str | PathLike[str] | None = None
    ) -> None:
        self.key = key
        valid = tuple(valid)
        close = difflib.get_close_matches(key.rsplit(".", 1)[-1], valid, n=1, cutoff=0.0)
        self.nearest = close[0] if close else None
        hint = f"; did you mean '{self.nearest}'? Valid: {', '.join(map(str, valid))}" if self.nearest else ""
        super().__init__(f"{key}: {message}{hint}", path)


class Undelivered(VerifierError):
    """An answer is known, but it could not be written where it was to go."""


class SoundnessError(VerifierError):
    """Two ways to compute the same thing disagree: no answer may be given."""


class NetworkMismatch(InputError, SoundnessError):
    """The lowered network does not compute what the file does, so the file is refused."""
