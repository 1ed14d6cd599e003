"""What a batch is judged by: errors, verdicts that were expected, results of an earlier batch, demands.

CI systems are told in JUnit XML: a suite per family, a case per instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from xml.etree import ElementTree

from verifier.batch.instances import Files, Names
from verifier.batch.records import Record
from verifier.result.verdict import Verdict

# XML 1.0 has no form for these at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Kind(Enum):
    """What can be wrong with a result, worst first."""

    CONTRADICTION = "CONTRADICTION"  # with a verdict that is known
    LOST = "REGRESSION"  # a verdict of the baseline is gone
    VANISHED = "VANISHED"  # an instance of the baseline with a verdict is not in the list any more
    ERROR = "ERROR"
    UNMET = "NOT MET"  # what --require asks for
    UNPROVED = "NO PROOF"  # of an `unsat`, though one was wanted; the batch does not fail, `verify check` will


class Require(Enum):
    """What every instance must come to."""

    UNSAT = "unsat"
    DECIDED = "decided"

    def met(self, verdict: Verdict) -> bool:
        return verdict is Verdict.UNSAT if self is Require.UNSAT else verdict.decided


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one result; `fails` if it makes the batch fail."""

    kind: Kind
    record: Record
    text: str
    fails: bool = True


@dataclass(frozen=True, slots=True)
class Demands:
    """What the results are held against."""

    expected: Mapping[Files, Verdict] = field(default_factory=dict)
    baseline: Mapping[Names, Record] = field(default_factory=dict)
    fail_on_regression: bool = False
    require: Require | None = None

    def judge(self, records: Iterable[Record]) -> list[Finding]:
        """All findings, worst first, else in the order of the records."""
        findings = [finding for record in records for finding in self._about(record)]
        order = list(Kind)
        return sorted(findings, key=lambda finding: order.index(finding.kind))

    def vanished(self, listed: Iterable[Names]) -> list[Finding]:
        """Instances that the baseline has decided and that are not listed any more, of the families that are."""
        names = set(listed)
        families = {category for category, _, _ in names}
        return [
            Finding(
                Kind.VANISHED,
                record,
                f"not in the list, but the baseline has {record.verdict.value}",
                self.fail_on_regression,
            )
            for key, record in self.baseline.items()
            if key not in names and record.category in families and record.verdict.decided
        ]

    def unused(self, records: Sequence[Record]) -> list[str]:
        """Warnings about files that speak about none of these instances: most likely they are the wrong files."""
        warnings = []
        if self.expected and not any(record.files in self.expected for record in records):
            warnings.append("--expected names none of these instances")
        if self.baseline and not any(record.names in self.baseline for record in records):
            warnings.append("--baseline names none of these instances")
        return warnings

    def _about(self, record: Record) -> Iterable[Finding]:
        verdict = record.verdict
        known = self.expected.get(record.files)
        if known is not None and verdict.decided and verdict is not known:
            yield Finding(Kind.CONTRADICTION, record, f"{verdict.value}, but {known.value} is expected")
        before = self.baseline.get(record.names)
        if before is not None and _lost(before, record):
            text = f"{verdict.value}, but the baseline has {before.verdict.value}"
            yield Finding(Kind.LOST, record, text, self.fail_on_regression)
        if verdict is Verdict.ERROR:
            yield Finding(Kind.ERROR, record, record.why)
        elif self.require is not None and not self.require.met(verdict):
            yield Finding(Kind.UNMET, record, f"{verdict.value}, but {self.require.value} is required")
        if record.unproved is not None:
            yield Finding(Kind.UNPROVED, record, record.unproved, fails=False)


def _lost(before: Record, now: Record) -> bool:
    """A definite verdict that is no longer given.  A violation that a changed file no longer has is no loss."""
    if not before.verdict.decided or now.verdict is before.verdict:
        return False
    repaired = (before.verdict, now.verdict) == (Verdict.SAT, Verdict.UNSAT)
    return not (repaired and _changed(before, now))


def _changed(before: Record, now: Record) -> bool:
    pairs = zip(before.digests, now.digests, strict=True)
    return any(None not in (old, new) and old != new for old, new in pairs)


def junit(records: Sequence[Record], findings: Sequence[Finding]) -> str:
    """The text of the file.

    A case fails if and only if it makes the batch fail.  An undecided one that does not is skipped: nothing was shown.
    """
    failing = [finding for finding in findings if finding.fails]
    records = [*records, *(finding.record for finding in failing if finding.kind is Kind.VANISHED)]
    suites = ElementTree.Element("testsuites", _counts(records, failing))
    for category in dict.fromkeys(record.category for record in records):
        own = [record for record in records if record.category == category]
        suite = ElementTree.SubElement(suites, "testsuite", {"name": _clean(category), **_counts(own, failing)})
        for record in own:
            _case(suite, record, [finding for finding in failing if finding.record is record])
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, record: Record, findings: Sequence[Finding]) -> None:
    name = f"{record.onnx} {record.vnnlib}"
    attributes = {"classname": record.category, "name": name, "time": f"{record.run_time:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", {key: _clean(value) for key, value in attributes.items()})
    if findings:  # one element for all of them: readers look at the first only
        tag = "error" if record.verdict is Verdict.ERROR else "failure"
        text = _clean("; ".join(finding.text for finding in findings))
        detail = {"type": findings[0].kind.value, "message": text}
        ElementTree.SubElement(case, tag, detail).text = f"{_clean(name)}: {text}"
    elif not record.verdict.decided:
        ElementTree.SubElement(case, "skipped", {"message": _clean(record.why)})
    ElementTree.SubElement(case, "system-out").text = record.verdict.value


def _counts(records: Sequence[Record], failing: Iterable[Finding]) -> dict[str, str]:
    errors = sum(record.verdict is Verdict.ERROR for record in records)
    marked = {id(finding.record) for finding in failing}
    failures = sum(id(record) in marked for record in records) - errors
    skipped = sum(not r.verdict.decided and id(r) not in marked for r in records)
    counts = {"tests": len(records), "failures": failures, "errors": errors, "skipped": skipped}
    return {**{k: str(n) for k, n in counts.items()}, "time": f"{sum(r.run_time for r in records):.3f}"}


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
