"""The whole page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from verifier.report import sections
from verifier.report.instances import Anchors, instance_table
from verifier.report.markup import Child, Markup, joined, tag
from verifier.report.pictures import Album
from verifier.report.summary import Run

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Browsers then keep the promise that the page loads nothing."""


def page(runs: Sequence[Run], title: str = "Verification report") -> str:
    """The page of some runs.

    Requires: at least one run, each with at least one instance.
    Guarantees: the same page for the same results and files; every word of a result is escaped.
    """
    anchors = Anchors(runs)
    main: list[Child] = [
        sections.heading(runs, title),
        sections.alarms(runs, anchors),
        _section("Runs" if len(runs) > 1 else "Summary", "", sections.cards(runs)),
        _section("Families", "families", sections.family_table(runs)),
        tag(
            "div",
            _section("Solved over time", "plots", sections.plots(runs, anchors)),
            _section("Time by phase", "phases", sections.phases(runs)),
            class_="pair" if len(runs) == 1 else None,  # side by side where there is room
        ),
    ]
    if len(runs) == 2:
        main.append(_section("Different verdicts", "changes", sections.changes(runs[0], runs[1], anchors)))
    main.append(_section("Settings", "settings", sections.settings(runs)))
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


def _section(title: str, name: str, *content: Child) -> Markup:
    return joined(Markup("\n"), tag("section", tag("h2", title), *content, class_=name or None))


def _own(name: str) -> Markup:
    """A file of this package, as it is: it holds nothing that was read."""
    return Markup(files("verifier.report").joinpath(name).read_text(encoding="utf-8"))
