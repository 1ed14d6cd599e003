"""Who listens to a search hears a whole tree, and of every proof enough to repeat it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from search.cases import grow, nobody, root_of
from search.signs.test_space import hard

from verifier.bounding.core.base import Until
from verifier.bounding.solvers.solver import Proof
from verifier.search.journal import Bounded, Journal
from verifier.search.loop import Limits, search
from verifier.search.signs.root import Batch
from verifier.search.signs.space import Policy, SignSpace


class Heard(Journal):
    """Keeps everything."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Bounded] = []
        self.proofs: list[tuple[Batch, Proof]] = []

    def bounded(self, found: Bounded) -> None:
        self.batches.append(found)

    def closed(self, batch: Batch, evidence: Proof) -> None:
        self.proofs.append((batch, evidence))


@dataclass(frozen=True)
class Node:
    parent: int
    signs: tuple[int, ...]
    kinks: tuple[int, ...]
    lower: float
    closed: bool
    tier: str


def tree(heard: Heard) -> dict[int, Node]:
    """All domains by number."""
    nodes: dict[int, Node] = {}
    for found in heard.batches:
        columns = found.number, found.parent, found.batch.signs, found.kinks, found.lower, found.closed
        for number, parent, signs, kinks, lower, closed in zip(*(c.tolist() for c in columns), strict=True):
            assert number not in nodes
            nodes[number] = Node(parent, tuple(signs), tuple(kinks), lower, closed, found.tier)
    return nodes


@pytest.fixture(scope="module")
def heard() -> Heard:
    listener, until = Heard(), Until()
    space = SignSpace(root_of(hard()), Policy(batch=32, fill=16), until, nobody, listener)
    outcome = search(space, Limits(), until)
    assert outcome.reason is None
    assert outcome.progress.domains == sum(len(found.number) for found in listener.batches)
    return listener


@pytest.mark.usefixtures("unchecked")
def test_domains_form_a_tree(heard: Heard) -> None:
    nodes = tree(heard)
    assert sorted(nodes) == list(range(len(nodes)))
    children: dict[int, list[Node]] = {}
    for node in nodes.values():
        children.setdefault(node.parent, []).append(node)
        if node.parent < 0:
            assert not any(node.signs)
            continue
        above = nodes[node.parent]
        assert not above.closed
        assert node.lower >= above.lower
        changed = {k for k, (a, b) in enumerate(zip(above.signs, node.signs, strict=True)) if a != b}
        assert changed == {k for k in node.kinks if k >= 0}
    for parent, below in children.items():
        if parent >= 0:  # all combinations of the signs where it was split
            assert len(below) == len({node.signs for node in below}) == 2 ** sum(k >= 0 for k in below[0].kinks)


@pytest.mark.usefixtures("unchecked")
def test_proofs_can_be_repeated(heard: Heard) -> None:
    """Every domain that was closed by its bound or as an exact leaf, with evidence that proves it in float64."""
    nodes = tree(heard)
    parents = {node.parent for node in nodes.values()}
    ends = {node.signs for number, node in nodes.items() if node.closed or number not in parents}
    proved = {tuple(signs) for batch, _ in heard.proofs for signs in batch.signs.tolist()}
    assert proved == ends
    assert any(not node.closed and number not in parents for number, node in nodes.items())  # some are leaves
    for batch, evidence in heard.proofs:
        assert bool(evidence.closed(batch.task(torch.float64)).all())


@pytest.mark.usefixtures("unchecked")
def test_a_listener_changes_nothing(heard: Heard) -> None:
    alone = grow(root_of(hard()), Policy(batch=32, fill=16))
    assert alone.progress.domains == len(tree(heard))
    assert alone.progress.counts.iterations > 0
    assert torch.is_tensor(heard.batches[0].lower)


def test_numbers_are_given_once() -> None:
    """Also to several searches that one listener follows."""
    journal = Journal()
    given = [journal.numbers(count) for count in (3, 0, 1, 4)]
    assert [list(some) for some in given] == [[0, 1, 2], [], [3], [4, 5, 6, 7]]
    shared, until = Heard(), Until()
    for _ in range(2):
        space = SignSpace(root_of(hard(0.5)), Policy(batch=32, fill=16), until, nobody, shared)
        search(space, Limits(max_batches=2), until)
    assert sorted(tree(shared)) == list(range(len(tree(shared))))
    assert sum(node.parent < 0 for node in tree(shared).values()) == 2
