"""Arguments of the entry points for Python, checked: whatever is passed becomes a plain value or an InputError."""

from __future__ import annotations

import math
import operator
import os
import re
from numbers import Real
from os import PathLike
from typing import Any

from verifier.errors import InputError

MOST_THREADS = 4096
LARGEST_SEED = 2**63 - 1


def seconds(timeout: Any, name: str = "timeout") -> float | None:
    """A time limit; None and infinity are none."""
    if timeout is None:
        return None
    try:
        value = math.nan if isinstance(timeout, bool) or not isinstance(timeout, Real) else float(timeout)
    except OverflowError:  # an integer or a fraction beyond all floats
        value = math.inf if timeout > 0 else -math.inf
    if math.isnan(value) or value < 0:
        raise InputError(f"{name} is {shown(timeout)}; a time limit is a number of seconds, 0 or more")
    return None if math.isinf(value) else value


def whole_number(value: Any, name: str, least: int, most: int) -> int:
    """An integer of Python or NumPy between two others."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except Exception:  # of any kind: it is an object of the user
        number = None
    if number is None or not least <= number <= most:
        raise InputError(f"{name} is {shown(value)}; it must be a whole number from {least} to {most}")
    return number


def positive_number(value: Any, name: str) -> float:
    """A finite number above zero."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not 0 < number < math.inf:
        raise InputError(f"{name} is {shown(value)}; it must be a positive number")
    return number


def device_name(device: object, name: str = "device") -> str:
    """`auto`, `cpu`, `cuda` or `cuda:N`, given as text or as a device of torch."""
    # A device of torch is known by its name: this module is loaded before torch is.
    named = str(device) if isinstance(device, str) or type(device).__name__ == "device" else ""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", named):
        raise InputError(f"{name} is {shown(device)}; a device is auto, cpu, cuda or cuda:N")
    return named


def path_name(value: object, what: str) -> str:
    """The path of a file as text.  `what` says what is expected, in words."""
    if not isinstance(value, str | PathLike):
        raise InputError(f"{what} is expected, not {shown(value)}")
    path: Any = os.fspath(value)
    if not isinstance(path, str):
        raise InputError(f"{what} is expected as text, not as bytes")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InputError(f"{what} is expected, but no file can have the name {shown(path)}") from None
    if not path or "\0" in path:
        raise InputError(f"{what} is expected, but no file can have the name {shown(path)}")
    return path


def shown(value: object) -> str:
    """A value in a message: short ones as they are, others by their type."""
    if isinstance(value, str | Real | None) and len(text := _text(value)) <= 60:
        return text
    return f"an object of type {type(value).__name__}"


def _text(value: object) -> str:
    try:
        return ascii(value)
    except ValueError:  # Python prints no integers of thousands of digits
        return "a number of thousands of digits"
