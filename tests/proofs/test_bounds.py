"""Bounds of hidden neurons that a search computes itself, and cuts that mix masks: the proof gives them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
import torch
from search.cases import random_case, root_of

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.bounding.solvers.solver import Task
from verifier.checker.check import check
from verifier.checker.nodes import NODES
from verifier.checker.scope import Scope
from verifier.checker.tree import Place, Walk
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.proofs.stream import Node
from verifier.proofs.witness import PRECISIONS, rounded, witness_of
from verifier.proofs.writer import ProofWriter
from verifier.result.verdict import Verdict
from verifier.search.journal import Event, Narrowed
from verifier.search.signs import tighten
from verifier.search.signs.root import Batch
from verifier.search.signs.space import SignSpace

RELUS = ("search.splitting=relus", "search.sharpen.after=null", "falsify.enabled=false")
"""Signs only, without a move to sharper bounds."""

SHARPENERS = [name for name in BOUNDERS.names(without="reference") if name != "interval"]


class Proved:
    """A bundled instance that was proved, and the nodes that the checker saw."""

    def __init__(self, root: Path, folder: Path, names: tuple[str, str] = ("digits_fc", "fc_branch_1442")) -> None:
        self.files = [str(root / f"properties/{k}/{n}.{k}") for k, n in zip(("onnx", "vnnlib"), names, strict=True)]
        self.proof = folder / "proof"
        self.scopes: list[tuple[Node, Scope]] = []
        self.order: list[Node] = []
        self.nodes: Counter[Node] = Counter()

    def __call__(self, options: Sequence[str] = (), preset: str = "auto") -> Proved:
        config = load_config(preset, tuple(options))
        request = Request(GivenFiles(*self.files), config, Machine("cpu", 1, 60.0), proof=str(self.proof))
        result = decide(request, request.status())
        assert (result.verdict, result.message) == (Verdict.UNSAT, None)
        return self

    def judged(self, patch: pytest.MonkeyPatch) -> str:
        judged, numbered = Walk._judged, []  # type: Any, list[tuple[int, Node, Scope]]
        kinds = {rule: Node(kind) for kind, rule in NODES.items()}

        def noted(walk: Walk, places: list[Place]) -> list[Place]:
            numbered.extend((place.number, kinds[type(place.node)], place.scope) for place in places)
            return judged(walk, places)

        with patch.context() as here:
            here.setattr(Walk, "_judged", noted)
            verdict = check(*self.files, str(self.proof)).verdict
        self.scopes = [(kind, scope) for _, kind, scope in sorted(numbered, key=lambda entry: entry[0])]
        self.order = [kind for kind, _ in self.scopes]
        self.nodes = Counter(self.order)
        return verdict


# ---------------------------------------------------------------- children that are tightened

TIGHT = (*RELUS, "search.tighten.every=1")


def test_tightened_children_are_proved(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Proved(root, tmp_path)(TIGHT)
    assert run.judged(monkeypatch) == "accepted"
    assert run.nodes[Node.IMPROVE] > 10


def test_bounds_that_were_tightened_are_missed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the nodes of tightened bounds the closings do not hold."""
    note = ProofWriter.note

    def deaf(writer: ProofWriter, event: Event) -> Any:
        return None if isinstance(event, Narrowed) else note(writer, event)

    monkeypatch.setattr(ProofWriter, "note", deaf)
    run = Proved(root, tmp_path, ("digits_fc", "fc_branch_1438"))(TIGHT)
    assert run.judged(monkeypatch) == "rejected"


def test_the_checker_finds_the_bounds_of_tightened_children(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every kink, in every domain that is closed by a bound; they differ by rounding errors only."""
    used: list[tuple[np.ndarray, np.ndarray]] = []
    close = SignSpace._close

    def heard(space: SignSpace, number: Any, by: Any, evidence: Any) -> None:
        batch, _ = evidence()
        region = batch.region()
        for d in range(len(number)):
            used.append(tuple(np.concatenate([s[d].numpy() for s in side]) for side in (region.l_hat, region.u_hat)))  # type: ignore[arg-type]
        close(space, number, by, evidence)

    monkeypatch.setattr(SignSpace, "_close", heard)
    run = Proved(root, tmp_path)((*TIGHT, "search.tighten.every=2"))
    assert run.judged(monkeypatch) == "accepted"
    closed = [scope for kind, scope in run.scopes if kind is Node.CLOSE]
    mine = np.array([np.concatenate(pair) for pair in used])
    theirs = np.array([np.concatenate([side[0] for side in (*s.lower, *s.upper)]) for s in closed])
    for row in mine:
        assert np.abs(theirs - row).max(axis=1).min() < 1e-9


def test_domains_with_bounds_of_their_own_begin_anew_when_a_search_moves(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Proved(root, tmp_path, ("digits_fc", "fc_branch_1438"))
    run(("search.tighten.every=1", "search.sharpen.after=0", "search.splitting=relus"))
    assert run.judged(monkeypatch) == "accepted"
    assert run.nodes[Node.RECALL] > 0  # clauses that were closed before


def test_repeatable_bounds_are_kept_as_they_are() -> None:
    repeatable = tighten.AfterSplit(every=3).repeatable()
    assert (repeatable.every, repeatable.kept, repeatable.travels) == (3, torch.float64, False)


# ---------------------------------------------------------------- roots that are sharpened


@pytest.mark.parametrize(
    "method",
    [
        m if m in ("alpha_crown", "bdd_plus", "wong_kolter") else pytest.param(m, marks=pytest.mark.slow)
        for m in SHARPENERS
    ],
)
def test_sharpened_roots_are_proved(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    few = () if method in ("crown", "wong_kolter") else (f"bounding.{method}.iterations=10",)
    run = Proved(root, tmp_path)((*RELUS, f"bounding.sharpen={method}", *few))
    assert run.judged(monkeypatch) == "accepted"
    assert run.order.index(Node.IMPROVE) < run.order.index(Node.CLOSE)
    assert run.nodes[Node.RECALL] == 0


def test_sharpened_roots_of_several_boxes_are_proved(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Proved(root, tmp_path, ("digits_fc", "fc_boxes_1447"))
    run((*RELUS, "bounding.sharpen=alpha_crown", "bounding.alpha_crown.iterations=10"))
    assert run.judged(monkeypatch) == "accepted"
    assert run.nodes[Node.IMPROVE] > 0


def test_boxes_are_searched_without_the_sharper_bounds_of_their_root(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Proved(root, tmp_path, ("cart_controller", "cart_cases"))
    run(("search.splitting=inputs", "bounding.sharpen=alpha_crown", "bounding.alpha_crown.iterations=10"))
    assert run.judged(monkeypatch) == "accepted"
    assert run.nodes[Node.KEEP] == run.nodes[Node.RECALL] == 2  # boxes of the property
    assert run.order.index(Node.KEEP) < run.order.index(Node.IMPROVE) < run.order.index(Node.RECALL)


def test_a_sharpened_root_that_moves_to_sharper_bounds_is_proved(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Proved(root, tmp_path, ("digits_fc", "fc_branch_1438"))
    run(("search.sharpen.after=0", "bounding.sharpen=alpha_crown", "bounding.alpha_crown.iterations=3"))
    assert run.judged(monkeypatch) == "accepted"


# ---------------------------------------------------------------- cuts that mix masks


BIG_M = ActiveSet(Ascent(0, Steps(1e-3, 1e-6)), Ascent(30, Steps(1e-2, 1e-4)), additions=Additions(most=0))
SADDLE = ("search.tiers=[{method: saddle_point, iterations: 20, initial: {iterations: 50}}]",)


def test_searches_by_saddle_point_are_proved(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Proved(root, tmp_path)((*RELUS, *SADDLE))
    assert run.judged(monkeypatch) == "accepted"


@pytest.mark.parametrize("seed", range(3))
def test_mixtures_of_masks_come_near_to_what_they_are_written_as(seed: int) -> None:
    """Written with more masks they lose less, and next to nothing in the end; no bound is above that of a point."""
    root = root_of(random_case("dense", seed, (1,)).problem([0.0]))
    task = Batch.whole(root).task(torch.float64)
    alone = Task(task.sweep, task.objective)
    state = (
        SaddlePoint(iterations=50, initial=BIG_M, primal_start=Ascent(10, Steps(1e-2, 1e-5)))
        .begin(alone, Until())
        .state
    )
    assert state is not None
    witness = witness_of(state, alone)  # type: ignore[arg-type]
    exact = witness.lower(alone)
    bounds = [rounded(witness, alone.sweep, precision).lower(alone) for precision in PRECISIONS]
    assert bool((bounds[-1] - exact).abs().max() < 1e-3)
    x = networks.points(root.region.lower, root.region.upper, 500, seed)
    least = root.net.forward(x[:, 0]) @ task.objective.coefficients[0].T
    assert all(bool((bound <= least.min() + task.objective.constant + 1e-9).all()) for bound in bounds)
