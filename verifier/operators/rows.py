"""Rows of a map written out as sparse vectors, for whoever needs single entries of the product matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch

from verifier.operators.base import LinearMap
from verifier.operators.matrix import stored_rows
from verifier.shapes import Float, Int, Tensor

_CHUNK_BYTES = 64 * 2**20


class RowSupport(NamedTuple):
    """The nonzero entries of some rows, row after row.

    Row r of the request owns the entries indptr[r] to indptr[r + 1]; `columns` ascend within a row.
    """

    indptr: Int[Tensor, " r_plus_1"]
    columns: Int[Tensor, " e"]
    values: Float[Tensor, " e"]


def row_support(
    linear_map: LinearMap, rows: Int[Tensor, " r"], dtype: torch.dtype = torch.float64, memory_bytes: int = _CHUNK_BYTES
) -> RowSupport:
    """The nonzero entries of the given rows of W, where W is the product if the map is composed.

    requires:   `rows` on the map's device, `dtype` the map's own
    guarantees: every entry that `transpose` can produce; entries of a product carry its rounding
    """
    width = max(linear_map.n_in, linear_map.n_out)
    chunk = max(1, memory_bytes // (2 * width * dtype.itemsize))
    counts, columns, values = [], [], []
    for start in range(0, len(rows), chunk):
        block = _dense_rows(linear_map, rows[start : start + chunk], dtype)
        found = torch.nonzero(block)
        counts.append(torch.bincount(found[:, 0], minlength=len(block)))
        columns.append(found[:, 1])
        values.append(block[found[:, 0], found[:, 1]])
    if not counts:
        return RowSupport(rows.new_zeros(1), rows.new_zeros(0), torch.zeros(0, dtype=dtype, device=rows.device))
    ends = torch.cat(counts).cumsum(dim=0)
    return RowSupport(torch.cat([ends.new_zeros(1), ends]), torch.cat(columns), torch.cat(values))


def _dense_rows(linear_map: LinearMap, rows: Int[Tensor, " r"], dtype: torch.dtype) -> Float[Tensor, "r n_in"]:
    known = stored_rows(linear_map, rows)
    if known is not None:
        return known
    units = torch.zeros(len(rows), linear_map.n_out, dtype=dtype, device=rows.device)
    units[torch.arange(len(rows), device=rows.device), rows] = 1.0
    return linear_map.transpose(units)
