"""Rows of maps as sparse vectors: they must be the rows of the (product) matrix, whatever the map is made of."""

from __future__ import annotations

import pytest
import torch

from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse, Sum, Transposed
from verifier.operators.rows import row_support


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


CONV = Conv(normal(3, 2, 3, 2), (2, 5, 4), (2, 1), ((1, 0), (0, 1)), (1, 1))
MAPS: dict[str, LinearMap] = {
    "dense": Dense(normal(4, 7) * (normal(4, 7) > 0)),
    "sparse": Sparse.of(normal(4, 7) * (normal(4, 7) > 0)),
    "dense in blocks": Dense(normal(4, 3), repeats=3),
    "conv": CONV,
    "transposed": Transposed(CONV),
    "select": Select(torch.tensor([2, -1, 0, 2]), 5),
    "diagonal": Diagonal(normal(6)),
    "product": Chain((CONV, Diagonal(normal(CONV.n_out)), Dense(normal(4, CONV.n_out)))),
    "sum": Sum((Dense(normal(5, 5)), Select.identity(5))),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("memory_bytes", [1, 2**20])
def test_rows_are_those_of_the_matrix(name: str, memory_bytes: int) -> None:
    linear_map = MAPS[name]
    matrix = linear_map.forward(torch.eye(linear_map.n_in, dtype=torch.float64)).T
    rows = torch.tensor([linear_map.n_out - 1, 0, 2])
    support = row_support(linear_map, rows, memory_bytes=memory_bytes)
    assert support.indptr[0] == 0
    assert support.indptr[-1] == len(support.columns) == len(support.values)
    for r, row in enumerate(rows):
        entries = slice(int(support.indptr[r]), int(support.indptr[r + 1]))
        columns = support.columns[entries]
        assert bool((columns[1:] > columns[:-1]).all())
        found = torch.zeros(linear_map.n_in, dtype=torch.float64)
        found[columns] = support.values[entries]
        torch.testing.assert_close(found, matrix[row], rtol=0, atol=1e-13)
        assert len(columns) == int((matrix[row] != 0).sum())


@pytest.mark.parametrize("name", MAPS)
def test_no_rows_have_no_entries(name: str) -> None:
    support = row_support(MAPS[name], torch.zeros(0, dtype=torch.long))
    assert [len(part) for part in support] == [1, 0, 0]
