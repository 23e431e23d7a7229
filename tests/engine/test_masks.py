"""Every mask, in every dtype and in every head layout, on every backend, against the dense oracle."""

from __future__ import annotations

import pytest
import torch

from engine.harness import MASKS, every_mask, in_every_dtype, judge_call, on_both_backends, qkv

LAYOUTS = {"multi-head": (4, 4), "grouped-query": (4, 2), "multi-query": (4, 1)}
in_every_layout = pytest.mark.parametrize(("heads", "kv_heads"), LAYOUTS.values(), ids=LAYOUTS)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@in_every_layout
@on_both_backends
def test_every_mask_agrees_with_the_oracle_in_every_layout(name, heads, kv_heads, backend):
    judge_call(qkv(33, 65, heads=heads, kv_heads=kv_heads), every_mask(33, 65, 2, heads)[name], backend)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@in_every_dtype
@on_both_backends
def test_every_mask_agrees_with_the_oracle_in_every_dtype(name, dtype, backend):
    judge_call(qkv(33, 65, kv_heads=2, dtype=dtype), every_mask(33, 65, 2, 4)[name], backend)


# What a mask decides, which pairs are visited, does not depend on both at once: a few masks stand for all.
@pytest.mark.share(4)
@pytest.mark.parametrize("name", ["none", "causal window", "ragged padding", "dense by row and head"])
@in_every_layout
@in_every_dtype
@on_both_backends
def test_every_layout_agrees_with_the_oracle_in_every_dtype(name, heads, kv_heads, dtype, backend):
    mask = every_mask(33, 65, 2, heads)[name]
    judge_call(qkv(33, 65, heads=heads, kv_heads=kv_heads, dtype=dtype), mask, backend)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@in_every_dtype
def test_every_mask_agrees_with_the_oracle_on_the_backend_chosen_for_it(name, dtype):
    judge_call(qkv(33, 65, kv_heads=2, dtype=dtype), every_mask(33, 65, 2, 4)[name])


@pytest.mark.share(4)
@pytest.mark.parametrize("name", [name for name in MASKS if "documents" not in name])
@on_both_backends
def test_more_queries_than_keys_agree_with_the_oracle(name, backend):
    mask = every_mask(65, 31, 2, 4)[name]
    judge_call(qkv(65, 31, dtype=torch.float32), mask, backend)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@on_both_backends
def test_every_mask_agrees_with_the_oracle_over_many_tiles(name, backend):
    """More rows than a block of either backend, more keys than a tile, and ragged batches row by row."""
    mask = every_mask(300, 1100, 2, 2)[name]
    judge_call(qkv(300, 1100, heads=2, kv_heads=1, dim=8), mask, backend)
