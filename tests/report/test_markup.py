"""HTML from calls: nothing slips through unescaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from verifier.report.markup import NOTHING, Markup, bound, breakable, joined, percent, seconds, tag

# What XML, the judge here, cannot hold at all is left out; line ends are normalised by it.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=20)


def test_elements_and_attributes() -> None:
    made = tag("td", "a < b", None, tag("b", "&"), class_="x", data_value=1.50, hidden=True, title=None, id=False)
    assert made == Markup('<td class="x" data-value="1.5" hidden>a &lt; b<b>&amp;</b></td>')
    assert tag("meta", charset="utf-8").text == '<meta charset="utf-8">'
    assert joined("<", Markup("<br>"), None).text == "&lt;<br>"


@given(TEXT, TEXT)
def test_any_text_comes_back(text: str, value: str) -> None:
    element = ET.fromstring(tag("p", text, title=value).text)
    assert (element.text or "") == text
    assert element.attrib["title"] == value


@given(TEXT)
def test_breaks_do_not_change_a_name(text: str) -> None:
    assert "".join(ET.fromstring(f"<p>{breakable(text).text.replace('<wbr>', '')}</p>").itertext()) == text


def test_names_break_after_separators() -> None:
    assert breakable("a_b/c<d").text == "a_<wbr>b/<wbr>c&lt;d"


def test_figures() -> None:
    assert [seconds(v) for v in (0.004, 9.994, 10.04, 99.94, 1234.5)] == ["0.00", "9.99", "10.0", "99.9", "1,234"]
    assert [percent(*v) for v in ((0, 0), (0, 5), (1, 1000), (999, 1000), (3, 3))] == [
        NOTHING,
        "0 %",
        "1 %",
        "99 %",
        "100 %",
    ]
    assert bound(-0.00012345) == "\N{MINUS SIGN}0.0001234"
    assert bound(None) == NOTHING
