"""Attention weighed by what it writes."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import strategies as st

from regard.errors import ShapeError
from regard.stats import NormWeighted
from stats.harness import close, dense_map, fold, in_any_cut, in_one, observed


@in_any_cut(d_model=st.sampled_from([1, 3, 5]))
def test_norm_weighted_matches_dense_in_any_tile_order(dense, seed, d_model):
    w_o = torch.randn(dense.frame.heads, 3, d_model, dtype=torch.float64)
    written = torch.einsum("bhij,bhjv,hvd->bhijd", dense.weights, dense.values, w_o).norm(dim=-1)
    found = observed(NormWeighted(w_o), dense, seed)
    close(found.rows, written.sum(-1))
    close(found.columns, written.sum(-2))


def test_query_heads_share_the_values_of_their_group_but_not_their_projection():
    dense = dense_map(0, 2, 4, 5, 63)
    dense.values = dense.values[:, :2]
    w_o = torch.randn(4, 3, 7, dtype=torch.float64)
    norms = torch.stack([(dense.values[:, head // 2] @ w_o[head]).norm(dim=-1) for head in range(4)], 1)
    close(in_one(NormWeighted(w_o), dense).columns, (dense.weights * norms[:, :, None]).sum(-2))


def test_garbage_behind_the_mask_does_not_leak():
    dense = dense_map(0, 1, 1, 4, 5, kind="causal")
    dense.weights[..., 0], dense.values[..., 0, :] = 0, torch.nan
    found = in_one(NormWeighted(torch.eye(3, 5, dtype=torch.float64)[None]), dense)
    assert found.rows.isfinite().all()
    assert found.columns.isfinite().all()


def test_a_projection_of_the_wrong_rank_is_refused():
    message = "w_o of NormWeighted has shape (4, 4); wanted (heads, v_dim, d_model)."
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        NormWeighted(torch.eye(4))


def test_a_projection_for_other_heads_is_refused():
    dense = dense_map(0, 1, 2, 1, 1)
    message = (
        "w_o of NormWeighted has shape (4, 3, 8); for 2 heads and values of 3 it must be (2, 3, d_model)."
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        fold(NormWeighted(torch.ones(4, 3, 8)), dense.frame, [])


def test_a_projection_is_shown_by_its_shape():
    assert repr(NormWeighted(torch.ones(2, 3, 8))) == "NormWeighted(w_o=<2 × 3 × 8>)"
