"""What is known of a data set: clean, certified and attacked accuracy, in all and by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from verifier.output import text_table
from verifier.result.verdict import Verdict

WORDS = {
    Verdict.UNSAT: "certified",
    Verdict.SAT: "falsified",
    Verdict.UNKNOWN: "undecided",
    Verdict.TIMEOUT: "timeout",
    Verdict.ERROR: "error",
}
"""What a verdict says about an image."""


@dataclass(frozen=True, slots=True)
class ImageOutcome:
    """What is known of one image: its class, that of the network, and the verdict about its ball.

    No verdict: the network's class is wrong at the image itself, or nobody has asked yet.
    """

    index: int
    label: int
    own: int
    verdict: Verdict | None = None
    seconds: float = 0.0
    other: int | None = None  # the network's class at the counterexample
    counterexample: tuple[float, ...] | None = None  # as the network takes it, normalised and flat

    @property
    def correct(self) -> bool:
        return self.own == self.label

    @property
    def done(self) -> bool:
        return not self.correct or self.verdict is not None

    @property
    def word(self) -> str:
        """What is known, in a word."""
        if not self.correct:
            return "misclassified"
        return "not done" if self.verdict is None else WORDS[self.verdict]


@dataclass(frozen=True, slots=True)
class Score:
    """Some images, counted.  Every image is wrong, certified, falsified or undecided."""

    images: int
    correct: int
    certified: int
    falsified: int
    undecided: int
    seconds: float

    @classmethod
    def of(cls, outcomes: Iterable[ImageOutcome]) -> Score:
        """Images about which nobody has asked yet are left out."""
        done = [outcome for outcome in outcomes if outcome.done]
        right = [outcome for outcome in done if outcome.correct]
        certified = sum(outcome.verdict is Verdict.UNSAT for outcome in right)
        falsified = sum(outcome.verdict is Verdict.SAT for outcome in right)
        undecided = len(right) - certified - falsified
        seconds = sum(outcome.seconds for outcome in done)
        return cls(len(done), len(right), certified, falsified, undecided, seconds)

    @property
    def standing(self) -> int:
        """Images that are classified correctly and for which no counterexample is known."""
        return self.certified + self.undecided

    def share(self, count: int) -> float:
        """Of all images."""
        return count / self.images if self.images else 0.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What is known of a data set.

    Guarantees: `certified` is the share of images whose ball was proved to keep their class, `attacked` the share of
    those that are classified correctly and have no known counterexample.  So certified <= robust <= attacked <= clean,
    where the robust accuracy is the true one.  What was not reached before an interrupt is left out of all shares.
    """

    network: str
    eps: str
    norm: str
    outcomes: tuple[ImageOutcome, ...]
    folder: str | None = None
    interrupted: bool = False

    @property
    def score(self) -> Score:
        return Score.of(self.outcomes)

    @property
    def clean(self) -> float:
        return self.score.share(self.score.correct)

    @property
    def certified(self) -> float:
        return self.score.share(self.score.certified)

    @property
    def attacked(self) -> float:
        return self.score.share(self.score.standing)

    @property
    def undecided(self) -> float:
        return self.score.share(self.score.undecided)

    @property
    def by_class(self) -> dict[int, Score]:
        """The score of every class that occurs among the labels."""
        labels = sorted({outcome.label for outcome in self.outcomes})
        return {label: Score.of(o for o in self.outcomes if o.label == label) for label in labels}

    def lines(self) -> list[str]:
        """Four accuracies."""
        score, waiting = self.score, len(self.outcomes) - self.score.images
        figures = {
            "clean accuracy": score.correct,
            "certified accuracy": score.certified,
            "attacked accuracy": score.standing,
            "undecided": score.undecided,
        }
        notes = {
            "clean accuracy": f"of {score.images} images",
            "certified accuracy": f"proved within {self.eps} in the norm {self.norm}",
            "attacked accuracy": "no counterexample is known",
        }
        found = [
            f"{name:<18} {percentage(n, score.images):>8}  {n:>6}  {notes.get(name, '')}" for name, n in figures.items()
        ]
        return [line.rstrip() for line in found] + ([f"{waiting} images were not reached"] if waiting else [])

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        shares = (f"{name} {100 * value:.1f} %" for name, value in self._shares().items())
        done = f", {self.score.images} of {len(self.outcomes)} done" if self.score.images < len(self.outcomes) else ""
        return f"Accuracy({len(self.outcomes)} images, eps {self.eps}: {', '.join(shares)}{done})"

    def _repr_html_(self) -> str:
        """For notebooks: the accuracies, and the table of classes."""
        import html

        rows = class_rows(self)
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
        text = html.escape("\n".join(self.lines()))
        return f"<pre>{text}</pre><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _shares(self) -> dict[str, float]:
        names = ("clean", "certified", "attacked", "undecided")
        return {name: getattr(self, name) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        images = [
            {"index": o.index, "label": o.label, "own": o.own, "outcome": o.word, "seconds": round(o.seconds, 6)}
            for o in self.outcomes
        ]
        counts = {name: getattr(self.score, name) for name in ("images", "correct", "certified", "falsified")}
        head = {"network": self.network, "eps": self.eps, "norm": self.norm}
        shares = {f"{name}_accuracy": value for name, value in self._shares().items() if name != "undecided"}
        return head | shares | counts | {"undecided": self.score.undecided, "outcomes": images}


def percentage(part: int, whole: int) -> str:
    """With one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def class_rows(accuracy: Accuracy) -> list[list[str]]:
    """A table: a row per class, and one for all."""
    rows = [["class", "images", "correct", "certified", "falsified", "undecided", "seconds"]]
    rows += [_row(str(label), score) for label, score in accuracy.by_class.items()]
    return [*rows, _row("all", accuracy.score)] if len(rows) > 2 else rows


def _row(name: str, score: Score) -> list[str]:
    counts = (score.images, score.correct, score.certified, score.falsified, score.undecided)
    return [name, *map(str, counts), f"{score.seconds:.1f}"]


def table_lines(accuracy: Accuracy) -> Sequence[str]:
    """The table of classes as text, for 80 columns."""
    return text_table(class_rows(accuracy))
