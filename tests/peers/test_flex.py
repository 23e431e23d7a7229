"""`Mask.from_mask_mod` and `score_mod` against FlexAttention itself, on the same functions."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from peers.flex_mods import MASK_MODS, SCORE_MODS
from regard import observe
from regard.masks import Mask

BATCH, HEADS, KV_HEADS, DIM = 2, 4, 2, 5
LENGTHS = [(33, 33), (17, 33), (33, 17), (1, 65), (65, 1)]
by_length = pytest.mark.parametrize(("q", "k"), LENGTHS)


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    # Otherwise it traces each call with Dynamo, a second each, and then runs the same operations.
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def leaves(q, k):
    sizes = [(HEADS, q, DIM), (KV_HEADS, k, DIM), (KV_HEADS, k, DIM + 2)]
    return [torch.randn(BATCH, *size, dtype=torch.float64) for size in sizes]


def theirs(given, mask_mod, score_mod):
    q, k = given[0].shape[2], given[1].shape[2]
    blocks = None if mask_mod is None else create_block_mask(mask_mod, BATCH, HEADS, q, k, device="cpu")
    out, rest = flex_attention(
        *given, score_mod=score_mod, block_mask=blocks, enable_gqa=True, return_aux=AuxRequest(lse=True)
    )
    return out, rest.lse


def ours(given, mask_mod, score_mod):
    q, k = given[0].shape[2], given[1].shape[2]
    mask = None if mask_mod is None else Mask.from_mask_mod(mask_mod, q, k)

    def by_row(score, b, h, position, key):
        # FlexAttention counts queries from 0; regard's last query sits on the last key.
        return score_mod(score, b, h, position - (k - q), key)

    seen = observe(*given, mask, score_mod=None if score_mod is None else by_row, stats=[])
    return seen.out, seen.lse


def agree(q, k, mask_mod=None, score_mod=None):
    """Output and log-sum-exp are the same but for float64's rounding. (It has no backward on the CPU.)"""
    given = leaves(q, k)
    results = [library(given, mask_mod, score_mod) for library in (ours, theirs)]
    # Sums of at most 65 terms of size 10 or less.
    torch.testing.assert_close(*results, rtol=0, atol=65 * 10 * torch.finfo(torch.float64).eps)


@by_length
@pytest.mark.parametrize("name", MASK_MODS)
def test_a_mask_mod_hides_what_it_hides_in_flex_attention(name, q, k):
    agree(q, k, MASK_MODS[name])


@by_length
@pytest.mark.parametrize("name", SCORE_MODS)
def test_a_score_mod_changes_what_it_changes_in_flex_attention(name, q, k):
    agree(q, k, None, SCORE_MODS[name])


@pytest.mark.parametrize("score", ["tanh_soft_cap", "alibi", "stand_alone_relative"])
@pytest.mark.parametrize("mask", MASK_MODS)
def test_mask_mods_and_score_mods_together_are_those_of_flex_attention(mask, score):
    agree(17, 33, MASK_MODS[mask], SCORE_MODS[score])


@pytest.mark.parametrize("name", MASK_MODS)
def test_the_blocks_of_flex_attention_and_the_tiles_of_a_mask_agree(name):
    """No tile that FlexAttention has to look at is EMPTY, and none that it finds half hidden is FULL."""
    q = k = 65
    theirs = create_block_mask(MASK_MODS[name], BATCH, HEADS, q, k, device="cpu", BLOCK_SIZE=16)
    mask = Mask.from_mask_mod(MASK_MODS[name], q, k).bind(BATCH, HEADS)
    partly = theirs.to_dense().bool().amax((0, 1))
    for i, j in product(range(5), range(5)):
        tile = (16 * i, min(16 * i + 16, q)), (16 * j, min(16 * j + 16, k))
        found = mask.tile(*tile)
        assert bool(found.any()) == bool(partly[i, j])
        assert mask.coverage(*tile) in (1, 2 * bool(found.all()))
