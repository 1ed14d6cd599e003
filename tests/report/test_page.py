"""The page: whole, self-contained, safe, and the same every time."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report.lines import folder, line

from verifier.report import instances
from verifier.report.markup import VOID
from verifier.report.page import page
from verifier.report.summary import Run, read_runs

HOSTILE = "\"><script>alert('x')</script><img src=x onerror=y>&amp;'"


class Outline(HTMLParser):
    """Checks that elements are closed in order; collects ids, links, elements by class and the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def count(self, tag: str, **wanted: str) -> int:
        return sum(t == tag and all(a.get(k) == v for k, v in wanted.items()) for t, a in self.tags)


def runs_of(path: Path, *lines: Any, name: str = "run") -> tuple[Run, ...]:
    return read_runs([folder(path / name, *lines)])


@pytest.fixture
def two(tmp_path: Path) -> tuple[Run, ...]:
    one = folder(tmp_path / "one", line("a", "sat", 0.5), line("b", "unsat", 2.0), line("c", "timeout", 10.0))
    other = folder(tmp_path / "other", line("b", "sat", 3.0), line("a", "sat", 0.7), line("d", "error", 0.1))
    return read_runs([one, other])


def test_a_page_holds_what_matters(two: tuple[Run, ...]) -> None:
    outline = Outline(page(two[:1]))
    assert outline.count("tbody", **{"data-family": "family"}) == 3
    assert "verify /there/net.onnx /there/a.vnnlib --timeout 10" in outline.text
    assert "((X_0 0.5)\n (X_1 -1.0)\n (Y_0 2.0))" in outline.text
    assert "2 of 3 solved" in outline.text
    assert outline.count("svg", **{"class": "plot"}) == 1
    assert "Different verdicts" not in outline.text


def test_two_runs_are_compared(two: tuple[Run, ...]) -> None:
    outline = Outline(page(two))
    assert outline.count("svg", **{"class": "plot"}) == 2
    assert outline.count("tbody", **{"data-family": "family"}) == 6
    assert "Different verdicts" in outline.text
    assert "Only in one: 1 instance." in outline.text
    assert "1 instance: sat in one run and unsat in another. One of them is wrong." in outline.text


def test_equal_runs_have_no_differences(tmp_path: Path) -> None:
    sources = [folder(tmp_path / name, line("a"), line("b")) for name in ("one", "two")]
    text = Outline(page(read_runs(sources))).text
    assert "None: the 2 instances of both runs have the same verdicts." in text
    assert "The runs do not differ in their settings." in text
    assert "One of them is wrong" not in text


def test_many_runs_make_one_page(tmp_path: Path) -> None:
    sources = [folder(tmp_path / f"run{i}", line("a"), line(f"b{i}")) for i in range(10)]
    outline = Outline(page(read_runs(sources)))
    assert outline.count("article") == 10
    assert outline.count("svg", **{"class": "plot"}) == 1


def test_links_lead_to_one_place_inside(two: tuple[Run, ...]) -> None:
    outline = Outline(page(two))
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    links = [a["href"] or "" for _, a in outline.tags if "href" in a]
    assert len(ids) == len(set(ids))
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_nothing_is_loaded(two: tuple[Run, ...]) -> None:
    text = page(two)
    outline = Outline(text)
    assert all((a["src"] or "").startswith("data:") for _, a in outline.tags if "src" in a)
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in outline.tags}
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    policy = next(a["content"] for _, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none'")


def test_every_text_of_a_result_is_escaped(tmp_path: Path) -> None:
    texts = ("network", "property", "onnx", "vnnlib", "category", "device", "message", "reason")
    hostile = dict.fromkeys(texts, HOSTILE) | {
        "command": [HOSTILE],
        "versions": {HOSTILE: HOSTILE},
        "config": {HOSTILE: {HOSTILE: HOSTILE}},
    }
    sources = [
        folder(tmp_path / "<b>one", line("a", "sat") | hostile),
        folder(tmp_path / "two", line("a", "error") | hostile | {"seed": 7}),
    ]
    text = page(read_runs(sources), title=HOSTILE)
    outline = Outline(text)
    assert text.count("<script>") == 1
    assert not any("onerror" in a for _, a in outline.tags)
    assert "<b>one" not in text
    assert "<b>one" in outline.text
    assert HOSTILE in outline.text


def test_halves_of_characters_do_not_break_the_file(tmp_path: Path) -> None:
    page(runs_of(tmp_path, line("a", message="\ud800", verdict="error"))).encode()


def test_the_same_results_give_the_same_page(two: tuple[Run, ...], tmp_path: Path) -> None:
    again = read_runs([run.source for run in two])
    assert page(two) == page(again)


def test_left_out_lines_are_told(tmp_path: Path) -> None:
    assert "1 line is left out of run" in Outline(page(runs_of(tmp_path, line("a"), "{torn"))).text


def test_a_line_with_nothing_but_a_verdict(tmp_path: Path) -> None:
    for verdict in ("sat", "unsat", "unknown", "timeout", "error"):
        Outline(page(runs_of(tmp_path, f'{{"verdict": "{verdict}"}}')))


def test_long_counterexamples_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = {"x": [float(i) for i in range(30)], "y": [0.5]}
    runs = runs_of(tmp_path, line("a", "sat", counterexample=witness))
    assert "(X_29 29.0)\n (Y_0 0.5))" in Outline(page(runs)).text
    monkeypatch.setattr(instances, "LONGEST", 10)
    text = Outline(page(runs)).text
    assert "(X_9 9.0)\n ... the rest stands in results.jsonl" in text
    assert "(X_10 " not in text


def test_pictures_of_a_bundled_instance(root: Path, tmp_path: Path) -> None:
    files = [root / "properties" / name for name in ("onnx/digits_conv.onnx", "vnnlib/conv_sat_1440.vnnlib")]
    from verifier.property.vnnlib import load_property

    x = load_property(files[1]).boxes.upper_in[0].tolist()
    witness = {"x": x, "y": [0.0] * 10}
    found = line("a", "sat", network=str(files[0]), property=str(files[1]), counterexample=witness)
    outline = Outline(page(runs_of(tmp_path, found)))
    assert outline.count("img") == 3
    assert "centre of the box" in outline.text


def test_without_scripts_nothing_is_hidden_or_waiting(two: tuple[Run, ...]) -> None:
    outline = Outline(page(two))
    assert not any("hidden" in a for _, a in outline.tags)
    assert not {"input", "select", "button"} & {tag for tag, _ in outline.tags}  # the script adds them


def test_a_witness_of_the_run_alone_is_called_so(tmp_path: Path) -> None:
    point = {"x": [0.5], "y": [2.0]}
    both = (line("a", "sat", arithmetic="run", counterexample=point), line("b", "unsat", rounding_witness=point))
    text = Outline(page(runs_of(tmp_path, *both))).text
    assert text.count("real arithmetic does not confirm it") == 2
    assert "violated by rounding: 1 inputs" in text
    sharp = page(runs_of(tmp_path, line("a", "sat", arithmetic="real"), name="other"))
    assert "does not confirm" not in sharp
