"""What the fuzzer has done so far: JSON lines, appended as each instance ends, so that a killed run can go on."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

UNDECIDED = 0.1  # the share of ordinary queries that may stay so
ATTEMPTS = 2  # an instance that twice ended the whole process is recorded as a crash


class Journal:
    """One file per seed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done: dict[int, dict[str, Any]] = {}
        self.begun: Counter[int] = Counter()
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")  # the last line is torn; what follows begins one of its own
        for line in self._lines():
            if "begin" in line:
                self.begun[line["begin"]] += 1
            else:
                self.done[line["number"]] = line

    def _lines(self) -> Iterable[dict[str, Any]]:
        if self.path.exists():
            for text in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    yield json.loads(text)
                except json.JSONDecodeError:  # torn by the end of a process; its instance is repeated
                    continue

    def next(self, number: int) -> int:
        """The first number from the given one on that is not done."""
        while number in self.done:
            number += 1
        return number

    def begin(self, number: int) -> bool:
        """Notes that an instance is about to run; False if it has ended the process too often."""
        self.begun[number] += 1
        self._append({"begin": number})
        return self.begun[number] <= ATTEMPTS

    def end(self, number: int, record: dict[str, Any]) -> None:
        self.done[number] = {"number": number, **record}
        self._append(self.done[number])

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    @property
    def wrong(self) -> int:
        return sum(len(record["wrong"]) for record in self.done.values())

    def weak(self, verdicts: Iterable[str] = ("unknown", "timeout")) -> bool:
        """Whether too many of the ordinary queries, away from the minimum, ended in one of these verdicts."""
        said = Counter(a["verdict"] for r in self.done.values() for a in r["answers"] if a["ordinary"])
        return sum(said[v] for v in verdicts) > UNDECIDED * said.total()

    def summary(self) -> str:
        """Verdicts by configuration, refusals by reason, what was wrong, seconds."""
        table: dict[str, Counter[str]] = defaultdict(Counter)
        refusals: Counter[str] = Counter()
        total, undecided, notes = Counter[str](), Counter[str](), Counter[str]()
        for record in self.done.values():
            for answer in record["answers"]:
                table[answer["setting"]][answer["verdict"]] += 1
                total[answer["verdict"]] += 1
                if answer["verdict"] == "refused":
                    refusals[_reason(answer["note"])] += 1
                elif answer["note"]:
                    notes[answer["note"]] += 1
                if answer["ordinary"]:
                    undecided[answer["verdict"]] += 1
        seconds = sum(record["seconds"] for record in self.done.values())
        lines = [f"{_counts(counts):60s} {name}" for name, counts in sorted(table.items())]
        lines += ["", f"{len(self.done)} instances, {total.total()} verdicts: {_counts(total)}; {seconds:.0f} s"]
        lines += [f"ordinary ones away from the minimum: {_counts(undecided)}"]
        lines += ["too many of these are undecided"] * self.weak()
        lines += [f"sat, {note}: {count}" for note, count in notes.most_common()]
        lines += [f"refused {count} times: {reason}" for reason, count in refusals.most_common(12)]
        skipped = Counter(record["skipped"] for record in self.done.values() if record.get("skipped"))
        lines += [f"skipped {count} times: {reason}" for reason, count in skipped.items()]
        for number, record in self.done.items():
            lines += [f"WRONG, instance {number}: {sentence}" for sentence in record["wrong"]]
        return "\n".join([*lines, f"{self.wrong} wrong"])


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def _reason(sentence: str) -> str:
    """A refusal without the names of its nodes and without numbers."""
    words = [w for w in sentence.split() if not any(c.isdigit() or c in "'\"" for c in w)]
    return " ".join(words)[:100]
