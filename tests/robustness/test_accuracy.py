"""Counting images."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verifier.result.verdict import Verdict
from verifier.robustness.accuracy import Accuracy, ImageOutcome, Score, table_lines

OUTCOMES = st.lists(
    st.builds(
        ImageOutcome,
        st.integers(0, 99),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([None, *Verdict]),
        st.floats(0, 10),
    )
)


@given(OUTCOMES)
def test_every_image_is_counted_once_and_the_accuracies_are_in_order(outcomes: list[ImageOutcome]) -> None:
    found = Accuracy("net", "0.1", "inf", tuple(outcomes))
    score = found.score
    assert score.correct == score.certified + score.falsified + score.undecided
    assert score.images == sum(not o.correct or o.verdict is not None for o in outcomes)
    assert 0 <= found.certified <= found.attacked <= found.clean <= 1
    assert abs(found.attacked - found.certified - found.undecided) < 1e-12
    parts = found.by_class.values()
    assert sum(part.images for part in parts) == score.images
    assert sum(part.certified for part in parts) == score.certified


def test_what_is_printed() -> None:
    verdicts = [Verdict.UNSAT, Verdict.UNSAT, Verdict.SAT, Verdict.TIMEOUT]
    outcomes = [ImageOutcome(i, i % 2, i % 2, verdict, 0.5) for i, verdict in enumerate(verdicts)]
    found = Accuracy("net.onnx", "0.1", "inf", (*outcomes, ImageOutcome(4, 1, 0), ImageOutcome(5, 0, 0)))
    assert repr(found) == (
        "Accuracy(6 images, eps 0.1: clean 80.0 %, certified 40.0 %, attacked 60.0 %, undecided 20.0 %, 5 of 6 done)"
    )
    assert str(found).splitlines() == [
        "clean accuracy       80.0 %       4  of 5 images",
        "certified accuracy   40.0 %       2  proved within 0.1 in the norm inf",
        "attacked accuracy    60.0 %       3  no counterexample is known",
        "undecided            20.0 %       1",
        "1 images were not reached",
    ]
    assert table_lines(found) == [
        "class   images   correct   certified   falsified   undecided   seconds",
        "0            2         2           1           1           0       1.0",
        "1            3         2           1           0           1       1.0",
        "all          5         4           2           1           1       2.0",
    ]
    assert "<td>all</td>" in found._repr_html_()
    assert found.as_dict()["certified_accuracy"] == 0.4
    assert [image["outcome"] for image in found.as_dict()["outcomes"]] == [
        "certified",
        "certified",
        "falsified",
        "timeout",
        "misclassified",
        "not done",
    ]


def test_no_image_has_no_share() -> None:
    assert Score.of([]).share(0) == 0.0
