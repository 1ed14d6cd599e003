"""A batch as JUnit XML: a suite per family, a case per instance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from verifier.batch.judge import Finding
from verifier.batch.records import Record
from verifier.result.verdict import Verdict

# XML 1.0 has no form for these at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(records: Sequence[Record], findings: Sequence[Finding]) -> str:
    """The text of the file.

    A case fails if and only if it makes the batch fail.  An undecided one that does not is skipped: nothing was shown.
    """
    failing = [finding for finding in findings if finding.fails]
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
