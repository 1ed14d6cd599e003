"""One instance after the other: make it, ask, judge, minimise and save what is wrong."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from fuzzing.instances import Case, cases
from fuzzing.journal import Journal
from fuzzing.judge import Answer, ask, contradictions, write
from fuzzing.minimise import minimised
from fuzzing.pieces import TooManyPieces
from fuzzing.queries import approximate
from fuzzing.settings import Setting, chosen
from fuzzing.simplex import OracleError

HANGS = 60  # seconds after which a run counts as one that never ends


class HangError(BaseException):
    """A run did not end long after its time limit.  No Exception, so that nothing in between takes it for an error."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which instances are run, and where what they show is kept."""

    seed: int
    folder: Path
    queries: int = 4  # per network
    settings: int = 3  # per query
    patience: float = 60.0  # seconds for making a finding smaller

    def journal(self) -> Journal:
        return Journal(self.folder / f"seed-{self.seed}.jsonl")

    def run(self, journal: Journal, number: int) -> None:
        """One instance, recorded in the journal."""
        if not journal.begin(number):
            journal.end(number, _record(0.0, ["the process died twice"]))
            return
        begin = time.monotonic()
        try:
            found = cases(self.seed, number, self.queries)
        except TooManyPieces:
            journal.end(number, _record(time.monotonic() - begin, [], skipped="too many pieces"))
            return
        except OracleError as error:  # not the verifier's fault, but to be looked at before anything else
            journal.end(number, _record(time.monotonic() - begin, [f"the oracle contradicts itself: {error}"]))
            return
        rng = random.Random(f"{self.seed}/{number}/settings")
        answers: list[dict[str, Any]] = []
        wrong: list[str] = []
        for k, case in enumerate(found):
            given = self.ask_all(case, chosen(rng, self.settings, not case.ordinary))
            answers += [
                {"case": k, "ordinary": case.ordinary and answer.setting.quick, **answer.record()} for answer in given
            ]
            wrong += self._keep(case, given, f"{self.seed}-{number}-{k}")
        journal.end(number, _record(time.monotonic() - begin, wrong, answers, style=found[0].style))

    def ask_all(self, case: Case, settings: Sequence[Setting]) -> list[Answer]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(case, folder)
            return [_ask(case, setting, folder) for setting in settings]

    def _keep(self, case: Case, answers: Sequence[Answer], name: str) -> list[str]:
        """Saves the first thing that is wrong about a query, minimised; returns all of them as sentences."""
        faults = [(f"{a.verdict} by {a.setting.name}: {a.wrong}", [a.setting]) for a in answers if a.wrong]
        for sentence in contradictions(answers):
            faults.append((sentence, [a.setting for a in answers if a.verdict in {"sat", "unsat"}]))
        if faults:
            sentence, settings = faults[0]
            kind = _kind(sentence)

            def fails(candidate: Case) -> bool:
                again = self.ask_all(candidate, settings)
                said = [f"{a.verdict} by : {a.wrong}" for a in again if a.wrong] + contradictions(again)
                return any(_kind(s) == kind for s in said)

            small = minimised(case, fails, self.patience) if fails(case) else case
            save(small, case, self.folder / "findings" / name, settings, sentence)
        return [sentence for sentence, _ in faults]


def _kind(sentence: str) -> str:
    """What must stay the same while a finding is made smaller."""
    return sentence.partition(" by ")[0] if not sentence.startswith("contradiction") else "contradiction"


def _record(seconds: float, wrong: list[str], answers: Sequence[Any] = (), **more: str) -> dict[str, Any]:
    return {"answers": list(answers), "wrong": wrong, "seconds": round(seconds, 3), **more}


def _ask(case: Case, setting: Setting, folder: Path) -> Answer:
    try:
        with ended_after(HANGS):
            return ask(case, setting, folder)
    except HangError:
        return Answer(setting, "crash", f"no answer {HANGS} s after the start")


@contextmanager
def ended_after(seconds: int) -> Iterator[None]:
    """Raises HangError inside, after that many seconds."""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def save(small: Case, case: Case, folder: Path, settings: Sequence[Setting], sentence: str) -> None:
    """A folder with the minimised case, its configuration, the original case and a line on what is wrong."""
    (folder / "original").mkdir(parents=True, exist_ok=True)
    write(small, folder)
    write(case, folder / "original")
    for i, setting in enumerate(settings):
        name = "config.yaml" if not i else f"config_{i + 1}.yaml"
        (folder / name).write_text(yaml.safe_dump(setting.config().resolved()), encoding="utf-8")
    truth = "sat" if small.truth.unsafe else "unsat"
    threads = ", ".join(f"threads={s.threads} seed={s.seed}" for s in settings)
    (folder / "README.md").write_text(
        f"{sentence} ({threads}); the truth of net.onnx is {truth}: margin {approximate(small.truth.margin)} "
        f"at {[approximate(v) for v in small.truth.x]}\n",
        encoding="utf-8",
    )
