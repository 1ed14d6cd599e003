"""Trimmed proofs: fewer leaves, and the checker accepts them as it does all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from verifier.bounding.core.closing import closes
from verifier.checker.check import check
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.processes import forkable
from verifier.proofs import trim
from verifier.proofs.ledger import Incomplete, Ledger
from verifier.proofs.log import Born, Covered, Said, Sharper
from verifier.result.verdict import Verdict

RELUS = ("search.splitting=relus", "search.sharpen.after=null")
MOVES = ("search.splitting=relus", "search.sharpen.after=0")


class Instance:
    """A bundled instance, and where its proof goes."""

    def __init__(self, root: Path, folder: Path, names: tuple[str, str] = ("digits_fc", "fc_branch_1438")) -> None:
        self.files = [str(root / f"properties/{k}/{n}.{k}") for k, n in zip(("onnx", "vnnlib"), names, strict=True)]
        self.proof = str(folder / "proof")

    def leaves(self, trimmed: bool, options: tuple[str, ...] = RELUS, threads: int = 1) -> int:
        """How many there are in its proof."""
        config, given = load_config("auto", options), GivenFiles(*self.files)
        request = Request(given, config, Machine("cpu", threads, 60.0), proof=self.proof, trim=trimmed)
        result = decide(request, request.status())
        assert result.verdict is Verdict.UNSAT
        assert result.proof is not None
        found: int = result.proof["leaves"]
        return found

    def verdict(self) -> str:
        return check(*self.files, self.proof).verdict


@pytest.fixture
def instance(root: Path, tmp_path: Path) -> Instance:
    return Instance(root, tmp_path)


def test_trimmed_proofs_are_smaller_and_accepted(instance: Instance) -> None:
    usual = instance.leaves(trimmed=False)
    assert instance.leaves(trimmed=True) < usual
    assert instance.verdict() == "accepted"


@pytest.mark.parametrize("options", [MOVES, (*RELUS, "search.tighten.every=1")], ids=["moves", "tightened"])
def test_trimmed_proofs_of_other_searches_are_accepted(instance: Instance, options: tuple[str, ...]) -> None:
    instance.leaves(True, options)
    assert instance.verdict() == "accepted"


def test_boxes_that_are_not_trimmed_are_accepted(root: Path, tmp_path: Path) -> None:
    boxes = Instance(root, tmp_path, ("toy", "toy_positive"))
    assert boxes.leaves(True, ()) == boxes.leaves(False, ())
    assert boxes.verdict() == "accepted"


@pytest.mark.slow
@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_trimmed_proofs_of_several_processes_are_accepted(root: Path, tmp_path: Path) -> None:
    large = Instance(root, tmp_path, ("digits_res", "res_branch_1441"))
    large.leaves(True, RELUS, threads=3)
    assert large.verdict() == "accepted"


def test_what_does_not_close_the_parent_may_not_be_left_out(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the bound of the parent not looked at, the checker would say so."""

    def believes(lower: Any) -> Any:
        return torch.ones_like(closes(lower))

    monkeypatch.setattr(trim, "closes", believes)
    instance.leaves(trimmed=True)
    assert instance.verdict() == "rejected"


def test_a_parent_that_both_children_close_is_closed_once() -> None:
    ledger = Ledger()
    ledger.keep([Born(0, -1, 0, ()), Born(1, 0, 0, ((1, 4, 1),)), Born(2, 0, 0, ((1, 4, -1),))])
    for child in (1, 2):
        ledger.keep([Said(child, [b"child"], last=True), Said(0, [b"parent of %d" % child], last=True)])
    assert ledger.subtrees([0], [0]) == [([0], 0)]
    assert list(ledger.by_signs(0, 0, 1)) == [[b"parent of 1"]]
    assert ledger.leaves == 1


PLACES = [((1, 4, a), (2, 0, b)) for a in (1, -1) for b in (1, -1)]


def split_twice(*closed: int) -> Ledger:
    """A domain with four children, some of which are closed."""
    ledger = Ledger()
    ledger.keep([Born(0, -1, 0, ()), *(Born(k, 0, 0, places) for k, places in enumerate(PLACES, 1))])
    ledger.keep([Said(number, [b"%d" % number], last=True) for number in closed])
    return ledger


def test_what_covers_two_children_takes_their_place() -> None:
    """One of them is still open."""
    ledger = split_twice(1, 3, 4)
    with pytest.raises(Incomplete):
        ledger.subtrees([0], [0])
    ledger.keep([Covered(0, ((1, 4, 1),), [b"both"])])
    assert ledger.subtrees([0], [0]) == [([0], 0)]
    written = b" ".join(p for pieces in ledger.by_signs(0, 0, 1) for p in pieces if isinstance(p, bytes))
    assert written == b"\1\1\4 both \1\2\0 3 4"
    assert ledger.leaves == 3


def test_a_cover_of_other_children_leaves_a_hole() -> None:
    ledger = split_twice(1, 3, 4)
    ledger.keep([Covered(0, ((1, 4, -1),), [b"both"])])
    with pytest.raises(Incomplete):
        ledger.subtrees([0], [0])


def test_covers_from_before_a_move_are_judged_by_the_bounds_of_then() -> None:
    ledger = split_twice(1)
    ledger.keep([Covered(0, ((1, 4, 1),), [b"both"]), Sharper(0, 2, [b"sharper"])])
    ledger.keep([Said(number, [b"%d" % number], last=True) for number in (3, 4)])
    written = [p for pieces in ledger.by_signs(0, 0, 1) for p in pieces]
    assert written == [b"\1\1\4", b"\n", b"both", b"\1\2\0", b"3", b"4"]
