"""Searches that move to sharper bounds of hidden neurons: the bounds that they use are those that a proof gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verifier.bounding.core.base import Region
from verifier.checker.check import Judgement, check
from verifier.checker.nodes import NODES
from verifier.checker.scope import Scope
from verifier.checker.tree import Place, Walk
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.processes import forkable
from verifier.proofs.stream import Node
from verifier.result.verdict import Verdict
from verifier.search.sharpen import Sharpener

NAMES = ("digits_fc", "fc_branch_1438")


def files(root: Path) -> tuple[str, str]:
    net, prop = NAMES
    return str(root / "properties" / "onnx" / f"{net}.onnx"), str(root / "properties" / "vnnlib" / f"{prop}.vnnlib")


def proved(root: Path, proof: Path, threads: int = 1) -> None:
    config = load_config("auto", ("search.sharpen.after=0",))
    request = Request(GivenFiles(*files(root)), config, Machine("cpu", threads, 60.0), proof=str(proof))
    assert decide(request, request.status()).verdict is Verdict.UNSAT


class Watched:
    """Makes a search move after some steps; knows the bounds that it then uses, and those that the checker finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: list[Region] = []
        self.scopes: list[tuple[Node, Scope]] = []
        self.nodes: Counter[Node] = Counter()
        self._calls, self._patch = 0, monkeypatch
        patient, regions = Sharpener._patient, Sharpener.regions

        def late(sharpener: Sharpener, *words: Any) -> bool:
            self._calls += 1
            return self._calls > 3 and patient(sharpener, *words)

        def used(sharpener: Sharpener) -> list[Region]:
            self.used = regions(sharpener)
            return self.used

        monkeypatch.setattr(Sharpener, "_patient", late)
        monkeypatch.setattr(Sharpener, "regions", used)

    def judge(self, root: Path, proof: Path) -> Judgement:
        judged, numbered = Walk._judged, []  # type: Any, list[tuple[int, Node, Scope]]
        kinds = {rule: Node(kind) for kind, rule in NODES.items()}

        def noted(walk: Walk, places: list[Place]) -> list[Place]:
            numbered.extend((place.number, kinds[type(place.node)], place.scope) for place in places)
            return judged(walk, places)

        self._patch.setattr(Walk, "_judged", noted)
        found = check(*files(root), str(proof))
        self.scopes = [(kind, scope) for _, kind, scope in sorted(numbered, key=lambda entry: entry[0])]
        self.nodes = Counter(kind for kind, _ in self.scopes)
        return found


def test_a_search_that_moves_is_proved(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Domains are closed before the move and after it; each is judged by the bounds that closed it."""
    watched = Watched(monkeypatch)
    proved(root, tmp_path / "proof")
    assert watched.judge(root, tmp_path / "proof").verdict == "accepted"
    assert watched.nodes[Node.KEEP] == 1
    assert watched.nodes[Node.IMPROVE] > 10
    assert 0 < watched.nodes[Node.RECALL] < watched.nodes[Node.CLOSE]


def test_the_search_uses_what_the_proof_gives(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker finds every bound of the search, and none that is better by more than rounding."""
    watched = Watched(monkeypatch)
    proved(root, tmp_path / "proof")
    watched.judge(root, tmp_path / "proof")
    (region,) = watched.used
    kept = next(place for place, (kind, _) in enumerate(watched.scopes) if kind is Node.KEEP)
    first = watched.scopes[kept][1]
    known = next(scope for kind, scope in watched.scopes[kept + 1 :] if kind is not Node.IMPROVE)
    for k in range(len(region.l_hat)):
        for sign, found, before, own in (
            (1, known.lower[k], first.lower[k], region.l_hat[k][0].numpy()),
            (-1, known.upper[k], first.upper[k], region.u_hat[k][0].numpy()),
        ):
            np.testing.assert_allclose(found[0], own, atol=1e-9)
            better = sign * (own - before[0]) > 1e-9
            assert (sign * found[0] >= sign * own)[better].all()
            assert better.any() == (k > 0)  # what reads the input has exact bounds


@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_bounds_that_a_fork_has_found_are_proved(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, ready = Watched(monkeypatch), Sharpener.ready

    def waited(sharpener: Sharpener, *words: Any) -> bool:
        ready(sharpener, *words)
        assert sharpener._beside is not None
        sharpener._beside.wait()
        return True

    monkeypatch.setattr(Sharpener, "ready", waited)
    proved(root, tmp_path / "proof", threads=2)
    assert watched.judge(root, tmp_path / "proof").verdict == "accepted"
    assert watched.nodes[Node.IMPROVE] > 10
