"""The table of instances: one entry per instance and run, with its command line and counterexample behind a fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verifier.batch.instances import Names
from verifier.batch.records import Record, StoredWitness
from verifier.report.markup import NOTHING, Child, Markup, bound, breakable, count, joined, seconds, tag, verdict
from verifier.report.pictures import Album, Picture
from verifier.report.summary import Run

LONGEST = 5000
"""Values of a counterexample that are written out; more would make a page of many megabytes."""

FEW = 24
"""Values of a counterexample that are shown without a second fold."""


COLUMNS = {
    "instance": None,
    "run": None,  # only if there are several
    "verdict": None,
    "proof": None,  # only if proofs were wanted
    "seconds": "number",
    "domains": "number extra",  # extra: left out of a narrow page
    "lower bound": "number extra",
}
"""The titles and their classes."""


class Anchors:
    """The names by which other parts of the page point at entries of the table."""

    def __init__(self, runs: Sequence[Run]) -> None:
        order = {record.names: None for run in runs for record in run.records}
        self.keys = sorted(order, key=lambda key: key[0])  # stable: else in the order of the runs
        self._index = {key: i for i, key in enumerate(self.keys, start=1)}

    def of(self, key: Names, run: int = 0) -> str:
        """The name of an instance's entry, of the run with this index."""
        return f"i{self._index[key]}" + (f"-{run + 1}" if run else "")


def instance_table(runs: Sequence[Run], anchors: Anchors, album: Album) -> Markup:
    """All entries.  Each is a `tbody` of its own, so that a script can sort and filter them."""
    several, proofs = len(runs) > 1, any(record.proof_wanted for run in runs for record in run.records)
    left_out = {name for name, shown in {"run": several, "proof": proofs}.items() if not shown}
    head = [tag("th", name, scope="col", class_=kind) for name, kind in COLUMNS.items() if name not in left_out]
    tables = [run.by_names for run in runs]
    bodies = []
    for key in anchors.keys:
        for i, (run, records) in enumerate(zip(runs, tables, strict=True)):
            if key in records:
                labels = Labels(run.name if several else None, _proof(run, records[key]) if proofs else None)
                shown = album.pictures(records[key], None if run.data is None else run.data.shape)
                bodies.append(_entry(records[key], labels, anchors.of(key, i), shown))
    return tag("table", tag("thead", tag("tr", *head)), *bodies, class_="instances", id="instances")


@dataclass(frozen=True, slots=True)
class Labels:
    """What an entry tells in columns that not every page has; None if this one has not."""

    run: str | None
    proof: str | None


def _proof(run: Run, record: Record) -> str:
    return run.proof(record) or NOTHING


def _entry(record: Record, labels: Labels, anchor: str, pictures: Sequence[Picture]) -> Markup:
    cells = [
        tag("th", tag("a", breakable(_stem(record.vnnlib)), href=f"#{anchor}"), scope="row", class_="instance"),
        None if labels.run is None else tag("td", breakable(labels.run), class_="run"),
        tag("td", verdict(record.verdict), class_="verdict"),
        None if labels.proof is None else tag("td", labels.proof, class_="proof"),
        tag("td", seconds(record.run_time), class_="seconds number", data_value=repr(record.run_time)),
        tag("td", count(record.domains), class_="number extra", data_value=_value(record.domains)),
        tag("td", bound(record.lower_bound), class_="number extra", data_value=_value(record.lower_bound)),
    ]
    folded = tag(
        "details",
        tag("summary", breakable(f"{record.category} · {_stem(record.onnx)}"), _hint(record)),
        *_details(record, pictures),
    )
    wide = sum(cell is not None for cell in cells)
    return tag(
        "tbody",
        tag("tr", *cells),
        tag("tr", tag("td", folded, colspan=str(wide)), class_="more"),
        id=anchor,
        data_family=record.category,
        data_verdict=record.verdict.value,
        data_run=labels.run,
    )


def _value(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _stem(path: str) -> str:
    """The last part of a path, without the endings that all such files have."""
    name = path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gz")
    return name.removesuffix(".vnnlib").removesuffix(".onnx") or "?"


def _hint(record: Record) -> Markup:
    told = "command, counterexample" if record.witness is not None else "command"
    return tag("span", told, class_="hint")


def _details(record: Record, pictures: Sequence[Picture]) -> list[Child]:
    facts = [
        ("why", record.reason),
        ("files", None if record.command else f"{record.onnx}, {record.vnnlib}"),
        ("time limit", None if record.timeout is None else f"{record.timeout:g} s"),
        ("time", ", ".join(f"{name} {seconds(value)} s" for name, value in record.phases.items() if value) or None),
        ("domains", count(record.domains) if record.domains else None),
        ("lower bound", None if record.lower_bound is None else repr(record.lower_bound)),
        ("proof", _written(record)),
        ("memory", None if not record.peak_rss_mb else f"{record.peak_rss_mb:,.0f} MB at most"),
    ]
    known = [joined(tag("dt", name), tag("dd", value)) for name, value in facts if value]
    return [
        tag("div", tag("pre", tag("code", record.command)), class_="command") if record.command else None,
        figures(pictures) if pictures else None,
        tag("dl", *known),
        None if record.witness is None else _numbers(record.witness, "counterexample"),
        None if record.rounding_witness is None else _numbers(record.rounding_witness, "violated by rounding"),
    ]


def _written(record: Record) -> str | None:
    """The proof's file, size and leaves; or why there is none."""
    if record.proof is None:
        return record.unproved
    told = [record.proof.file]
    told += [] if record.proof.bytes is None else [f"{record.proof.bytes:,} bytes"]
    told += [] if record.proof.leaves is None else [f"{record.proof.leaves:,} leaves"]
    return ", ".join(told)


def figures(pictures: Sequence[Picture]) -> Markup:
    """The pictures with their captions, beside each other."""
    shown = [
        tag(
            "figure",
            tag("img", src=p.uri, alt=p.caption, width=str(p.width), height=str(p.height)),
            tag("figcaption", p.caption),
        )
        for p in pictures
    ]
    return tag("div", *shown, class_="pictures")


def _numbers(witness: StoredWitness, name: str) -> Markup:
    """A point in the form of VNN-COMP; the beginning only if it is very long."""
    size = len(witness.x) + len(witness.y)
    heading = f"{name}: {len(witness.x):,} inputs, {len(witness.y):,} outputs"
    if not witness.exact:
        heading += " (some input has no float in its interval; one next to it is used)"
    if not witness.real:
        heading += " (of the network's own run; real arithmetic does not confirm it)"
    pairs = [f"(X_{i} {v!r})" for i, v in enumerate(witness.x)] + [f"(Y_{i} {v!r})" for i, v in enumerate(witness.y)]
    body = "(" + "\n ".join(pairs[:LONGEST]) + (")" if size <= LONGEST else "\n ... the rest stands in results.jsonl")
    text = tag("pre", tag("code", body), class_="witness")
    if size <= FEW:
        return joined(tag("p", heading), text)
    return tag("details", tag("summary", heading), text)
