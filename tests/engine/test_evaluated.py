"""Masks without intervals are evaluated once per call, and mean what they meant."""

from __future__ import annotations

import pytest
import torch

from oracle import dense_attention, dense_mask
from regard import attention
from regard.engine.inputs import Options, problem_of
from regard.engine.sdpa_backend import calls
from regard.masks import BigBird, Causal, Dense, Documents, Mask, RandomBlocks, Strided, Where, Window

Q, K, BATCH, HEADS = 321, 517, 2, 4


def masks() -> dict[str, Mask]:
    ids = torch.arange(K) // 7 % 5
    pairs = torch.rand(BATCH, HEADS, Q, K, generator=torch.Generator().manual_seed(5)) < 0.3
    pairs[0, 1, 17] = False
    return {
        "strided": Strided(7),
        "strided and window": Causal() & (Strided(31) | Window(9)),
        "random blocks": RandomBlocks(16, 3, K),
        "bigbird": BigBird(16, K),
        "interleaved documents": Documents(ids=ids),
        "documents by row": Documents(ids=torch.stack([ids, ids.flip(0)])),
        "where": Where(lambda b, h, q, k: (q - k) % 3 == 1),
        "where by head": Where(lambda b, h, q, k: (k <= q) & ((q - k) % (h + 1) == 0)),
        "where by row": Where(lambda b, h, q, k: (k < 400) | (b == 1)),
        "dense": Dense(pairs[0, 0]),
        "dense by head": Dense(pairs[:1]),
        "dense by row": Dense(pairs[:, :1]),
        "dense by both": Dense(pairs),
        "dense and more": Dense(pairs) & Causal() | Window(2),
    }


@pytest.mark.parametrize("name", masks())
def test_each_mask_twice_against_float64(name):
    torch.manual_seed(6)
    mask = masks()[name]
    q = torch.randn(BATCH, HEADS, Q, 16)
    k, v = torch.randn(2, BATCH, HEADS, K, 16)
    allowed = dense_mask(mask, q, k)
    exact = dense_attention(q.double(), k.double(), v.double(), allowed).out
    for _ in range(2):
        got = attention(q, k, v, mask, backend="sdpa")
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_function_is_called_once_for_each_pair():
    pairs = []

    def mask_mod(b, h, q, k):
        pairs.append(torch.broadcast_shapes(b.shape, h.shape, q.shape, k.shape).numel())
        return (q - k) % 3 == h % 3

    q, k, v = torch.randn(3, 1, HEADS, 520, 8).unbind()
    attention(q, k, v, Where(mask_mod))
    assert max(pairs) == HEADS * 520 * 520
    assert sum(pairs) < 1.01 * max(pairs)


def test_a_function_that_changed_is_called_again():
    step = [3]
    mask = Where(lambda b, h, q, k: (q - k) % step[0] == 0)
    q, k, v = torch.randn(3, 1, 1, 300, 8).unbind()
    for each in (3, 5):
        step[0] = each
        torch.testing.assert_close(attention(q, k, v, mask), attention(q, k, v, Strided(each)))


def test_values_are_evaluated_once_and_long_texts_never():
    def of(mask: Mask, n: int) -> Mask:
        q, k, v = torch.zeros(3, 1, 1, n, 8).unbind()
        problem = problem_of(q, k, v, Options(mask))
        assert problem.mask is not None
        return calls._evaluated(problem.mask, problem)

    assert of(Strided(3), 300) is of(Strided(3), 300)
    assert of(Strided(3), 300) is not of(Strided(4), 300)
    assert isinstance(of(Strided(3), 1500), Strided)
    assert of(Causal(), 300) == Causal()


def test_tiles_are_kept_for_values_that_are_small():
    def of(mask: Mask, n: int) -> calls.Tiles | None:
        q, k, v = torch.zeros(3, 1, 1, n, 8).unbind()
        return calls._tiles_of(problem_of(q, k, v, Options(mask)), mask)

    assert of(RandomBlocks(16, 3, 300), 300) is of(RandomBlocks(16, 3, 300), 300)
    assert of(RandomBlocks(16, 3, 300), 300) is not of(RandomBlocks(16, 3, 300, seed=1), 300)
    changing = Where(lambda b, h, q, k: (q - k) % 3 == 0)
    assert of(changing, 300) is not of(changing, 300)
    assert of(Strided(3), 1100) is None
