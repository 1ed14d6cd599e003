"""Makes a case that fails smaller while it still fails: clauses, rows, nodes, weights, boxes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx
from onnx import numpy_helper

from fuzzing.instances import Case, truth_of
from fuzzing.pieces import ExactNetwork
from fuzzing.queries import Clause, Query

Fails = Callable[[Case], bool]


def minimised(case: Case, fails: Fails, seconds: float = 60.0) -> Case:
    """A smaller case that still fails, found greedily within about the given time.

    Requires: `fails(case)`.  Guarantees: `fails(result)`, with the result's own exact truth.  Thresholds move with the
    minimum, so the margin stays what it was.
    """
    end = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in _smaller(case):
            if time.monotonic() > end:
                break
            fitted = _fitted(candidate, case)
            if fitted is not None and fails(fitted):
                case, progress = fitted, True
                break
    return case


def _fitted(candidate: Case, case: Case) -> Case | None:
    """The candidate with its own truth, and with thresholds such that the margin is the old one; None if broken."""
    try:
        network = ExactNetwork.of(candidate.model)
        query = candidate.query
        shift = truth_of(network, query).margin - case.truth.margin
        if shift and abs(shift) != abs(case.truth.margin):
            query = _shifted(query, shift)
        return replace(candidate, query=query, truth=truth_of(network, query))
    except Exception:  # a node was taken away that others need: nothing to keep
        return None


def _shifted(query: Query, shift: Fraction) -> Query:
    return replace(
        query,
        clauses=tuple(
            replace(c, rows=tuple(replace(row, bound=row.bound + shift) for row in c.rows)) for c in query.clauses
        ),
    )


def _smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, the most rewarding first."""
    yield from _queries(case)
    yield from _fewer_nodes(case)
    yield from _plainer_boxes(case)
    yield from _plainer_weights(case)


def _queries(case: Case) -> Iterator[Case]:
    clauses = case.query.clauses
    if len(clauses) > 1:
        for clause in clauses:
            yield replace(case, query=replace(case.query, clauses=(clause,)))
    for i, clause in enumerate(clauses):
        if len(clause.rows) > 1:
            for row in clause.rows:
                yield _with_clause(case, i, replace(clause, rows=(row,)))
        for k, row in enumerate(clause.rows):
            if any(row.x):
                plain = replace(row, x=tuple(Fraction(0) for _ in row.x))
                yield _with_clause(case, i, replace(clause, rows=(*clause.rows[:k], plain, *clause.rows[k + 1 :])))


def _with_clause(case: Case, position: int, clause: Clause) -> Case:
    clauses = case.query.clauses
    return replace(case, query=replace(case.query, clauses=(*clauses[:position], clause, *clauses[position + 1 :])))


def _fewer_nodes(case: Case) -> Iterator[Case]:
    """Each node with one output in turn replaced by one of its operands."""
    for position in reversed(range(len(case.model.graph.node))):
        node = case.model.graph.node[position]
        for operand in node.input if len(node.output) == 1 else ():
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            del model.graph.node[position]
            _rename(model.graph, node.output[0], operand)
            yield replace(case, model=_without_unused(model))


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
    if graph.output[0].name == old:
        graph.output[0].name = new


def _without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes and constants that nobody reads are dropped."""
    graph, wanted = model.graph, {model.graph.output[0].name}
    for position in reversed(range(len(graph.node))):
        node = graph.node[position]
        if wanted.isdisjoint(node.output):
            del graph.node[position]
        else:
            wanted.update(node.input)
    for position in reversed(range(len(graph.initializer))):
        if graph.initializer[position].name not in wanted:
            del graph.initializer[position]
    return model


def _plainer_boxes(case: Case) -> Iterator[Case]:
    for i, clause in enumerate(case.query.clauses):
        for j, (low, high) in enumerate(zip(clause.lower, clause.upper, strict=True)):
            whole = Fraction(round(low)), Fraction(round(high))
            for a, b in ((Fraction(0), Fraction(0)), (low, low), (high, high), (Fraction(-1), Fraction(1)), whole):
                if a <= b and (a, b) != (low, high) and _simpler((a, b), (low, high)):
                    lower = (*clause.lower[:j], a, *clause.lower[j + 1 :])
                    upper = (*clause.upper[:j], b, *clause.upper[j + 1 :])
                    yield _with_clause(case, i, replace(clause, lower=lower, upper=upper))


def _simpler(new: tuple[Fraction, Fraction], old: tuple[Fraction, Fraction]) -> bool:
    def size(pair: tuple[Fraction, Fraction]) -> tuple[bool, int]:
        return pair[0] != pair[1], sum(len(str(v)) for v in pair)

    return size(new) < size(old)


def _plainer_weights(case: Case) -> Iterator[Case]:
    """Whole constants made zero or rounded, then their entries one by one."""
    for position, tensor in enumerate(case.model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind != "f":
            continue
        for changed in _plainer_arrays(array):
            if not np.array_equal(changed, array):
                model = onnx.ModelProto()
                model.CopyFrom(case.model)
                model.graph.initializer[position].CopyFrom(numpy_helper.from_array(changed, tensor.name))
                yield replace(case, model=model)


def _plainer_arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    yield np.zeros_like(array)
    for places in (0, 1, 2):
        rounded = np.round(array, places)
        if _length(rounded) < _length(array):
            yield rounded
    for index in np.ndindex(array.shape):
        for value in (0.0, 1.0, -1.0, np.round(array[index])):
            changed = array.copy()
            changed[index] = value
            if _length(changed) < _length(array):
                yield changed


def _length(array: np.ndarray) -> int:
    """How much there is to write."""
    return sum(len(repr(float(v)).replace("0.0", "")) for v in array.ravel())
