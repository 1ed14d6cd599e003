"""What is wrong with a batch, for the pages of CI systems: GitHub's annotations, and SARIF 2.1.0.

Both point at the file of the property, relative to the working directory, which in CI is the top of the repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from verifier import __version__
from verifier.batch.judge import Finding, Kind

MEANINGS = {
    Kind.CONTRADICTION: "The verdict contradicts one that is known.",
    Kind.LOST: "A verdict of the baseline is gone.",
    Kind.VANISHED: "An instance of the baseline is no longer in the list.",
    Kind.ERROR: "The instance ended in an error.",
    Kind.UNMET: "The verdict is not the one that is required.",
    Kind.UNPROVED: "A proof was wanted and could not be written.",
}


class Format(Enum):
    """What a batch writes to stdout at its end."""

    TEXT = "text"
    GITHUB = "github"
    SARIF = "sarif"


def github_lines(findings: Sequence[Finding]) -> list[str]:
    """A workflow command per finding: an error if it makes the batch fail, else a warning."""
    return [_command(finding) for finding in findings]


def _command(finding: Finding) -> str:
    level = "error" if finding.fails else "warning"
    properties = {"file": _relative(finding.record.files[1]), "line": "1", "title": f"verify: {finding.kind.value}"}
    listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
    return f"::{level} {listed}::{_escaped(_text(finding))}"


def _escaped(text: str, more: str = "") -> str:
    """As GitHub reads it: a percent sign and two digits for what would end the text."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def sarif(findings: Sequence[Finding]) -> str:
    """The text of a SARIF file with one result per finding."""
    rules = [{"id": kind.name, "shortDescription": {"text": MEANINGS[kind]}} for kind in Kind]
    driver = {"name": "strata-verifier", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_result(finding) for finding in findings]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(finding: Finding) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _relative(finding.record.files[1])}, "region": {"startLine": 1}}
    return {
        "ruleId": finding.kind.name,
        "level": "error" if finding.fails else "warning",
        "message": {"text": _text(finding)},
        "locations": [{"physicalLocation": place}],
    }


def _text(finding: Finding) -> str:
    return f"{' '.join(finding.record.names)}: {finding.text}"


def _relative(path: str) -> str:
    """The path from the working directory, if the file lies below it, with slashes."""
    try:
        return Path(os.path.realpath(path)).relative_to(os.path.realpath(os.curdir)).as_posix()
    except ValueError:
        return Path(path).as_posix()
