"""Diagonal sums without the copy."""

from __future__ import annotations

import threading

import pytest
import torch

from regard.scores import diagonal_sums
from regard.stats.skew import skewed_sums


@pytest.mark.parametrize("q", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("k", [1, 127, 128, 129, 300])
def test_skewed_sums_are_diagonal_sums(q, k):
    tile = torch.randn(2, 3, q, k, dtype=torch.float64)
    for _ in range(2):  # the second time, scratch memory is no longer new
        torch.testing.assert_close(skewed_sums(tile), diagonal_sums(tile), rtol=0, atol=1e-12)


def test_skewed_sums_read_tiles_that_are_views():
    whole = torch.randn(200, 300, dtype=torch.float64)
    for view in (whole[3:131, 7:], whole.T, whole[:, ::2], whole.expand(2, 200, 300)):
        torch.testing.assert_close(skewed_sums(view), diagonal_sums(view), rtol=0, atol=1e-12)


def test_skewed_sums_are_the_same_bits_on_every_run():
    tile = torch.randn(192, 300)
    assert torch.equal(skewed_sums(tile), skewed_sums(tile))


def test_skewed_sums_made_in_inference_mode_leave_the_next_call_alone():
    tile = torch.randn(64, 131)
    with torch.inference_mode():
        skewed_sums(tile)
    torch.testing.assert_close(skewed_sums(tile), diagonal_sums(tile))


def test_skewed_sums_keep_no_graph():
    tile = torch.randn(64, 132, requires_grad=True)
    assert not skewed_sums(tile).requires_grad


def test_threads_do_not_share_scratch_memory():
    tiles = [torch.full((128, 300), float(i)) for i in range(4)]
    wrong = []

    def work(tile: torch.Tensor) -> None:
        expected = diagonal_sums(tile)
        wrong.extend(i for i in range(50) if not torch.equal(skewed_sums(tile), expected))

    threads = [threading.Thread(target=work, args=(tile,)) for tile in tiles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
