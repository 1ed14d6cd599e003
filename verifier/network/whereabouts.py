"""Which line of the user's code is being executed, for messages."""

from __future__ import annotations

import os
import sys
from types import CodeType, TracebackType

import torch

_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(name)) + os.sep for name in (torch.__file__, os.path.dirname(__file__))
)
_GENERATED = ("<eval_with_key>", "<frozen", "<__array_function__")

Place = tuple[str, int]


def _is_users(code: CodeType) -> bool:
    return not os.path.abspath(code.co_filename).startswith(_PACKAGES) and not code.co_filename.startswith(_GENERATED)


def current_place(stop: CodeType) -> Place | None:
    """File and line of the innermost frame outside of torch and of this package, inside of a call of `stop`."""
    frame = sys._getframe(1)
    while frame.f_code is not stop:
        if _is_users(frame.f_code):
            return frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def place_of(trace: TracebackType | None) -> Place | None:
    """The same for an error that was caught: the innermost frame of the user's code that it went through."""
    found = None
    while trace is not None:
        if _is_users(trace.tb_frame.f_code):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found
