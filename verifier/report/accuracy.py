"""Data sets on a page: accuracies, a table of classes, and counterexamples as pictures."""

from __future__ import annotations

from collections.abc import Sequence

from verifier.batch.records import Record
from verifier.report.instances import Anchors, figures
from verifier.report.markup import Markup, count, joined, seconds, tag
from verifier.report.pictures import Album
from verifier.report.plots import shares
from verifier.report.summary import Run
from verifier.result.verdict import Verdict
from verifier.robustness.accuracy import Accuracy, ImageOutcome, Score, percentage

SHOWN = 36
"""Counterexamples in the gallery, at most; all of them stand in the list of instances."""

PARTS = {
    "certified": "certified",
    "undecided": "undecided",
    "falsified": "falsified",
    "wrong": "misclassified",
}
"""What becomes of an image, by the names of the style sheet and in words."""


def accuracies(runs: Sequence[Run]) -> Markup:
    """The figures of every data set, and of a single one the table of its classes."""
    found = [(run, accuracy) for run in runs if (accuracy := run.accuracy) is not None]
    legend = tag("ul", *[tag("li", tag("i", class_=f"swatch {k}"), word) for k, word in PARTS.items()], class_="legend")
    parts: list[Markup] = []
    for run, accuracy in found:
        parts.append(tag("h3", run.name) if len(found) > 1 else joined())
        parts.append(_figures(accuracy))
    if len(found) == 1:
        parts.append(tag("div", _classes(found[0][1]), class_="scroll"))
    return joined(*parts, legend)


def _figures(accuracy: Accuracy) -> Markup:
    score = accuracy.score
    figures = [
        ("clean", score.correct, "classified correctly"),
        ("certified", score.certified, f"proved within {accuracy.eps}"),
        ("attacked", score.standing, "no counterexample is known"),
        ("undecided", score.undecided, "neither was shown"),
    ]
    boxes = [
        tag(
            "article",
            tag("h3", name),
            tag("p", tag("b", percentage(n, score.images)), class_="big"),
            tag("p", f"{n:,} of {score.images:,}: {words}", class_="note"),
        )
        for name, n, words in figures
    ]
    waiting = len(accuracy.outcomes) - score.images
    note = f"{waiting:,} of {len(accuracy.outcomes):,} images are not done yet and not counted." if waiting else None
    ball = f"{accuracy.network}; balls of radius {accuracy.eps} in the norm {accuracy.norm}."
    told = tag("p", ball, None if note is None else f" {note}", class_="note")
    return joined(tag("div", *boxes, class_="scores"), told)


def _classes(accuracy: Accuracy) -> Markup:
    titles = ("class", "images", "clean", "certified", "attacked", "falsified", "undecided", "seconds")
    head = [tag("th", name, scope="col", class_=None if name == "class" else "number") for name in titles]
    head.append(tag("th", tag("span", "shares", class_="hidden"), scope="col", class_="bar"))
    rows = [tag("tbody", _row(str(label), score)) for label, score in accuracy.by_class.items()]
    rows.append(tag("tbody", _row("all", accuracy.score), class_="total"))
    return tag("table", tag("thead", tag("tr", *head)), *rows, class_="families")


def _row(name: str, score: Score) -> Markup:
    standing = [percentage(n, score.images) for n in (score.correct, score.certified, score.standing)]
    counts = [tag("td", count(n), class_="number" + ("" if n else " zero")) for n in (score.falsified, score.undecided)]
    wrong = score.images - score.correct
    values = (score.certified, score.undecided, score.falsified, wrong)
    bar = shares(dict(zip(PARTS, map(float, values), strict=True)))
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", count(score.images), class_="number"),
        *[tag("td", text, class_="number") for text in standing],
        *counts,
        tag("td", seconds(score.seconds), class_="number"),
        tag("td", bar, class_="bar"),
    )


def gallery(run: Run, anchors: Anchors) -> Markup | None:
    """Counterexamples beside their images; None if there is none, or if the inputs are no images."""
    accuracy, data, album = run.accuracy, run.data, Album()
    if accuracy is None or data is None:
        return None
    files = {image.index: image.file for image in data.images}
    records = {record.vnnlib: record for record in run.records}
    broken = [outcome for outcome in accuracy.outcomes if outcome.verdict is Verdict.SAT]
    shown = [
        _exhibit(outcome, records[str(files[outcome.index])], data.shape, anchors, album) for outcome in broken[:SHOWN]
    ]
    exhibits = [exhibit for exhibit in shown if exhibit is not None]
    if not exhibits:
        return None
    more = len(broken) - len(exhibits)
    note = tag("p", f"{more:,} more stand in the list of instances.", class_="note") if more else None
    return joined(tag("div", *exhibits, class_="exhibits"), note)


def _exhibit(
    outcome: ImageOutcome, record: Record, shape: tuple[int, ...], anchors: Anchors, album: Album
) -> Markup | None:
    pictures = album.pictures(record, shape)
    if not pictures:
        return None
    title = f"image {outcome.index}: class {outcome.label} becomes {outcome.other}"
    link = tag("a", title, href=f"#{anchors.of(record.names)}")
    return tag("div", tag("p", link), figures(pictures), class_="exhibit")
