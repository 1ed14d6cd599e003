"""The whole page, one HTML file that needs nothing else: from the heading to the settings and the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files

from verifier.batch.checks import Standing
from verifier.batch.records import Record
from verifier.batch.summary import OTHER, Tally, tally
from verifier.report.accuracy import accuracies, gallery
from verifier.report.instances import Anchors, instance_table
from verifier.report.markup import NOTHING, Child, Markup, breakable, count, joined, percent, seconds, tag, verdict
from verifier.report.pictures import Album
from verifier.report.plots import TimesCurve, cactus, scatter, shares
from verifier.report.summary import (
    Run,
    changed,
    common,
    contradictions,
    differing,
    families,
    of_family,
    pairs,
)
from verifier.result.result import PHASES
from verifier.result.verdict import Verdict

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Browsers then keep the promise that the page loads nothing."""

COLOURS = 8
"""Curves that the style sheet tells apart."""

ORDER = (Verdict.UNSAT, Verdict.SAT, Verdict.UNKNOWN, Verdict.TIMEOUT, Verdict.ERROR)

ALARMING = (Standing.REJECTED.value, Standing.UNREADABLE.value)
"""What is said of proofs that a reader must not miss."""

ANSWERS = {
    Verdict.UNSAT: "the property holds",
    Verdict.SAT: "violated, with a counterexample",
    Verdict.UNKNOWN: "ended without an answer",
    Verdict.TIMEOUT: "time limit reached",
    Verdict.ERROR: "could not be run",
}


def page(runs: Sequence[Run], title: str = "Verification report") -> str:
    """The page of some runs.

    Requires: at least one run, each with at least one instance.
    Guarantees: the same page for the same results and files; every word of a result is escaped.
    """
    anchors = Anchors(runs)
    main: list[Child] = [
        heading(runs, title),
        alarms(runs, anchors),
        *_accuracies(runs, anchors),
        _section("Runs" if len(runs) > 1 else "Summary", "", cards(runs)),
        _section("Families", "families", family_table(runs)),
        tag(
            "div",
            _section("Solved over time", "plots", plots(runs, anchors)),
            _section("Time by phase", "phases", phases(runs)),
            class_="pair" if len(runs) == 1 else None,  # side by side where there is room
        ),
    ]
    if len(runs) == 2:
        main.append(_section("Different verdicts", "changes", changes(runs[0], runs[1], anchors)))
    main.append(_section("Settings", "settings", settings(runs)))
    main.append(_section("Instances", "list", tag("div", instance_table(runs, anchors, Album()), class_="scroll")))
    body = tag("body", tag("main", *main), tag("script", _own("page.js")))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", _own("style.css")),
    )
    text = "<!DOCTYPE html>\n" + tag("html", head, body, lang="en").text + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON may hold halves of characters, a file may not


def _accuracies(runs: Sequence[Run], anchors: Anchors) -> list[Markup]:
    """What is to be said of data sets, and the counterexamples of a single one."""
    if not any(run.data is not None for run in runs):
        return []
    found = [_section("Accuracy", "accuracy", accuracies(runs))]
    shown = gallery(runs[0], anchors) if len(runs) == 1 else None
    return found if shown is None else [*found, _section("Counterexamples", "gallery", shown)]


def _section(title: str, name: str, *content: Child) -> Markup:
    return joined(Markup("\n"), tag("section", tag("h2", title), *content, class_=name or None))


def _own(name: str) -> Markup:
    """A file of this package, as it is: it holds nothing that was read."""
    return Markup(files("verifier.report").joinpath(name).read_text(encoding="utf-8"))


def heading(runs: Sequence[Run], title: str) -> Markup:
    instances = len({record.names for run in runs for record in run.records})
    names = families(runs)
    what = f"{instances:,} instance{_s(instances)} in {len(names)} famil{'y' if len(names) == 1 else 'ies'}"
    if len(runs) > 1:
        what += f", {len(runs)} runs"
    legend = [tag("li", verdict(v), " ", ANSWERS[v]) for v in ORDER]
    return tag("header", tag("h1", title), tag("p", what, class_="lead"), tag("ul", *legend, class_="legend"))


def alarms(runs: Sequence[Run], anchors: Anchors) -> Markup | None:
    """What a reader must not miss: runs that contradict each other, rejected proofs, lines that could not be read."""
    notes = []
    wrong = contradictions(runs)
    if wrong:
        links = [tag("li", tag("a", " · ".join(key), href=f"#{_first(runs, key, anchors)}")) for key in wrong]
        text = f"{len(wrong)} instance{_s(len(wrong))}: sat in one run and unsat in another. One of them is wrong."
        notes.append(tag("div", tag("strong", text), tag("ul", *links), class_="alarm", role="alert"))
    for i, run in enumerate(runs):
        bad = [record.names for record in run.records if run.proof(record) in ALARMING]
        if bad:
            links = [tag("li", tag("a", " · ".join(key), href=f"#{anchors.of(key, i)}")) for key in bad]
            text = f"{len(bad)} proof{_s(len(bad))} of {run.name}: not accepted by the checker."
            notes.append(tag("div", tag("strong", text), tag("ul", *links), class_="alarm", role="alert"))
        if run.skipped:
            lines = "1 line is" if run.skipped == 1 else f"{run.skipped} lines are"
            notes.append(tag("div", f"{lines} left out of {run.name}: not readable as results.", class_="remark"))
    return joined(*notes) if notes else None


def _first(runs: Sequence[Run], key: tuple[str, str, str], anchors: Anchors) -> str:
    return anchors.of(key, next(i for i, run in enumerate(runs) if key in run.by_names))


def cards(runs: Sequence[Run]) -> Markup:
    """One box per run: how much it solved, and under which conditions."""
    return tag("div", *[_card(run, i) for i, run in enumerate(runs)], class_="cards")


def _card(run: Run, index: int) -> Markup:
    found = tally(run.records)
    told = common(run)
    conditions = [
        ("version", told.get("version of strata-verifier")),
        ("device", told.get("device")),
        ("threads", told.get("threads")),
        ("time limit", _range(run.records)),
    ]
    counts = [tag("li", tag("b", count(found.counts[v])), " ", verdict(v)) for v in ORDER]
    conditions.append(("proofs", _proofs(run)))
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in conditions if value]
    return tag(
        "article",
        tag("h3", tag("i", class_=f"swatch c{index % COLOURS}"), run.name),
        tag("p", tag("b", count(found.solved)), f" of {found.instances:,} solved", class_="big"),
        _verdict_bar(found),
        tag("ul", *counts, class_="counts"),
        tag("p", tag("b", f"{seconds(found.seconds)} s"), " in total, PAR-2 ", tag("b", f"{seconds(found.par2)} s")),
        tag("dl", *facts),
    )


def _proofs(run: Run) -> str | None:
    """How many proofs of the `unsat` were accepted, and how many not."""
    counts = Counter(said for record in run.records if (said := run.proof(record)) is not None)
    return ", ".join(f"{n} {said}" for said, n in sorted(counts.items())) or None


def _range(records: Sequence[Record]) -> str | None:
    limits = {record.timeout for record in records if record.timeout is not None}
    if not limits:
        return None
    low, high = min(limits), max(limits)
    return f"{low:g} s" if low == high else f"{low:g} to {high:g} s"


def _verdict_bar(found: Tally) -> Markup:
    return shares({v.value: float(found.counts[v]) for v in ORDER})


def family_table(runs: Sequence[Run]) -> Markup:
    """Counts and times of every family and run, and their sums."""
    several = len(runs) > 1
    titles = ["family", *(["run"] if several else []), "instances", *[v.value for v in ORDER]]
    titles += ["solved", "seconds", "PAR-2"]
    head = [tag("th", name, scope="col", class_=None if name in ("family", "run") else "number") for name in titles]
    head.append(tag("th", tag("span", "verdicts", class_="hidden"), scope="col", class_="bar"))
    note = "PAR-2: the seconds of solved instances plus twice the time limit of all others."
    table = tag("table", tag("thead", tag("tr", *head)), *_groups(runs, _counted), class_="families")
    return joined(tag("div", table, class_="scroll"), tag("p", note, class_="note"))


def _groups(runs: Sequence[Run], cells: Callable[[Tally], list[Markup]]) -> list[Markup]:
    """The rows of a table: for every family, and for all of them together, one row per run."""
    names = families(runs)
    groups = [_group(name, [(run, of_family(run, name)) for run in runs], cells) for name in names]
    if len(names) > 1:
        groups.append(_group("all", [(run, run.records) for run in runs], cells, "total"))
    return groups


def _group(
    name: str,
    found: Sequence[tuple[Run, Sequence[Record]]],
    cells: Callable[[Tally], list[Markup]],
    kind: str | None = None,
) -> Markup:
    rows = []
    present = [(run, records) for run, records in found if records]
    for i, (run, records) in enumerate(present):
        first = tag("th", breakable(name), scope="rowgroup", rowspan=str(len(present))) if i == 0 else None
        second = tag("td", breakable(run.name), class_="run") if len(found) > 1 else None
        rows.append(tag("tr", first, second, *cells(tally(records))))
    return tag("tbody", *rows, class_=kind)


def _counted(found: Tally) -> list[Markup]:
    counts = [tag("td", count(n), class_="number" + ("" if n else " zero")) for n in map(found.counts.get, ORDER)]
    return [
        tag("td", count(found.instances), class_="number"),
        *counts,
        tag("td", percent(found.solved, found.instances), class_="number"),
        tag("td", seconds(found.seconds), class_="number"),
        tag("td", seconds(found.par2), class_="number"),
        tag("td", _verdict_bar(found), class_="bar"),
    ]


def plots(runs: Sequence[Run], anchors: Anchors) -> Markup:
    """The cactus plot, and for two runs the scatter plot beside it."""
    limit = _limit(runs)
    if len(runs) == 1:
        groups = [("all", (Verdict.UNSAT, Verdict.SAT)), ("unsat", (Verdict.UNSAT,)), ("sat", (Verdict.SAT,))]
        curves = [TimesCurve(name, name, _times(runs[0], *which)) for name, which in groups]
    else:
        solved = (Verdict.UNSAT, Verdict.SAT)
        curves = [TimesCurve(run.name, f"c{i % COLOURS}", _times(run, *solved)) for i, run in enumerate(runs)]
    caption = "Instances solved when each may take so many seconds. Further right and lower is better."
    figures = [tag("figure", cactus(curves, limit), tag("figcaption", caption))]
    if len(runs) == 2:
        both = pairs(runs[0], runs[1])
        drawn = scatter((runs[0], runs[1]), both, limit, anchors.of)
        caption = f"Each instance of both runs ({len(both):,}). Below the diagonal {runs[1].name} is faster. "
        marks = "Triangles are sat, circles unsat, crosses neither."
        figures.append(tag("figure", drawn, tag("figcaption", caption + marks)))
    return tag("div", *figures, class_="figures")


def _times(run: Run, *which: Verdict) -> list[float]:
    return [record.run_time for record in run.records if record.verdict in which]


def _limit(runs: Sequence[Run]) -> float | None:
    """The time limit, if all instances have the same."""
    limits = {record.timeout for run in runs for record in run.records}
    return limits.pop() if len(limits) == 1 else None


def phases(runs: Sequence[Run]) -> Markup:
    """A bar per family and run: where the time went."""
    names = (*PHASES, OTHER)
    legend = [tag("li", tag("i", class_=f"swatch {name}"), name) for name in names]
    table = tag("table", *_groups(runs, _spent), class_="phases")
    return joined(tag("ul", *legend, class_="legend"), table)


def _spent(found: Tally) -> list[Markup]:
    bar = tag("td", shares(found.phases, " s"), class_="bar")
    return [bar, tag("td", f"{seconds(found.seconds)} s", class_="number")]


def changes(first: Run, second: Run, anchors: Anchors) -> Markup:
    """The instances with different verdicts, those that one run solved first."""
    found = changed(first, second)
    one, other = ({record.names for record in run.records} for run in (first, second))
    missing = [(first.name, len(one - other)), (second.name, len(other - one))]
    notes = [tag("p", f"Only in {name}: {n} instance{_s(n)}.", class_="note") for name, n in missing if n]
    if not found:
        same = f"None: the {len(one & other):,} instances of both runs have the same verdicts."
        return joined(tag("p", same), *notes)
    found.sort(key=lambda pair: -sum(record.verdict.decided for record in pair))
    rows = []
    for a, b in found:
        link = tag("a", breakable(f"{a.onnx} · {a.vnnlib}"), href=f"#{anchors.of(a.names)}")
        cells = [tag("td", verdict(r.verdict), tag("small", f" {seconds(r.run_time)} s")) for r in (a, b)]
        rows.append(tag("tr", tag("th", tag("span", a.category, class_="tag"), link, scope="row"), *cells))
    titles = ("instance", first.name, second.name)
    head = tag("thead", tag("tr", *[tag("th", name, scope="col") for name in titles]))
    table = tag("table", head, tag("tbody", *rows), class_="changes")
    return joined(tag("div", table, class_="scroll"), *notes)


def settings(runs: Sequence[Run]) -> Markup:
    """What the runs have in different, and all settings behind a fold."""
    parts = []
    differences = differing(runs) if len(runs) > 1 else []
    if differences:
        parts.append(tag("p", "The runs differ in:"))
        parts.append(_setting_table(runs, differences))
    elif len(runs) > 1:
        parts.append(tag("p", "The runs do not differ in their settings."))
    told = [common(run) for run in runs]
    names = sorted({name for values in told for name in values})
    whole = [(name, [values.get(name, NOTHING) for values in told]) for name in names]
    if whole:
        parts.append(tag("details", tag("summary", "all settings"), _setting_table(runs, whole)))
    return joined(*parts)


def _setting_table(runs: Sequence[Run], rows: Sequence[tuple[str, Sequence[str]]]) -> Markup:
    head = tag("thead", tag("tr", *[tag("th", name, scope="col") for name in ("setting", *(r.name for r in runs))]))
    body = [tag("tr", tag("th", name, scope="row"), *[tag("td", value) for value in values]) for name, values in rows]
    return tag("div", tag("table", head, tag("tbody", *body), class_="setting"), class_="scroll")


def _s(number: int) -> str:
    return "" if number == 1 else "s"
