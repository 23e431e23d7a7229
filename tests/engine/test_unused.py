"""NaN and inf in rows that are in no visible pair reach neither a projection nor its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import attention
from regard.engine import unused
from regard.masks import Causal, Dense, Mask, Padding, Where, Window
from regard.nn import Bahdanau
from regard.scores import Additive, Concat, General, Score

N, DIM = 9, 4
REAL = torch.tensor([[True] * 7 + [False] * 2, [False] * 3 + [True] * 6])
# Of two groups of two heads, the first sees the first keys and the second the last.
BY_HEAD = torch.stack([torch.arange(N) < 3, torch.arange(N) < 5, torch.arange(N) > 6, torch.arange(N) > 4])
MASKS = {
    "padding": Padding(REAL),
    "both sides": Dense((REAL[:, :, None] & REAL[:, None])[:, None]),
    "causal": Causal(shift=-3) & Window(4),
    "by head": Dense(BY_HEAD[None, :, None].expand(1, 4, N, N)),
    "function": Where(lambda b, h, i, j: (j < 5) & (i > 3)),
}
SCORES = {
    "Additive": ((2 * DIM + 1, 5), lambda w: Additive(w[:DIM], w[DIM:-1], w[-1])),
    "Concat": ((2 * DIM + 1, 5), lambda w: Concat(w[:-1], w[-1])),
    "General": ((DIM, DIM), General),
}


class Bent(Score):
    """A score function of a user's own that projects."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def prepare(self, q, k):
        return q @ self.weight.to(q.dtype), k @ self.weight.to(k.dtype)

    def tile(self, q, k, *parameters):
        return q.tanh() @ k.mT


def gradients(mask: Mask, score, weight: Tensor, fill: float, dtype: torch.dtype) -> list[Tensor]:
    """The output and all gradients, with `fill` in every query and key that no visible pair uses."""
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(2, 4, N, DIM, generator=generator).to(dtype)
    k, v = (torch.randn(2, 2, N, DIM, generator=generator).to(dtype) for _ in range(2))
    seen = mask.bind(2, 4).dense(N).expand(2, 4, N, N)
    of_k = seen.any(-2).unflatten(1, (2, 2)).any(2)
    q, k = (x.masked_fill(~used[..., None], fill) for x, used in ((q, seen.any(-1)), (k, of_k)))
    own = [x.clone().requires_grad_() for x in (q, k, v, weight)]
    out = attention(*own[:3], mask, score=score(own[3]))  # pyright: ignore[reportCallIssue]
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in own if x.grad is not None)]


@pytest.mark.share(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", [*SCORES, "Bent"])
def test_garbage_in_rows_that_no_pair_uses_changes_nothing(name, mask, garbage, dtype):
    shape, score = SCORES.get(name, ((DIM, DIM), Bent))
    weight = torch.randn(*shape, generator=torch.Generator().manual_seed(4))
    got, wanted = (gradients(MASKS[mask], score, weight, fill, dtype) for fill in (garbage, 0.0))
    assert len(got) == 5
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b)


def test_nan_in_masked_queries_of_a_bilinear_score_stays_in_them():
    """In bfloat16 a matrix product may carry NaN from one row to others."""
    for n in (1, 17, 63, 65):
        q, k, v = (
            torch.randn(3, 1, 1, 2 * n, 64, generator=torch.Generator().manual_seed(n)).bfloat16().unbind()
        )
        q[:, :, n:] = torch.nan
        live = torch.arange(2 * n) < n
        mask = Dense(live[:, None] & torch.ones(2 * n, dtype=torch.bool))
        out = attention(q, k, v, mask, score=General(torch.eye(64).bfloat16()))
        assert out[:, :, :n].isfinite().all()
        assert not out[:, :, n:].any()


def test_padded_memory_of_nan_leaves_the_weights_of_bahdanau_finite():
    torch.manual_seed(0)
    layer = Bahdanau(DIM, DIM, 5)
    query, memory = torch.randn(2, 3, DIM), torch.randn(2, N, DIM)
    memory[0, 4:] = torch.nan
    layer(query, memory, lengths=[4, N]).sum().backward()
    found = [x.grad for x in layer.parameters() if x.grad is not None]
    assert found
    assert all(x.isfinite().all() for x in found)


def test_a_query_that_does_see_nan_still_says_so():
    q, k, v = torch.randn(3, 1, 1, N, DIM).unbind()
    k[:, :, 2] = torch.nan
    out = attention(q, k, v, Causal(), score=General(torch.eye(DIM)))
    assert out[:, :, :2].isfinite().all()
    assert out[:, :, 2:].isnan().all()


def test_rows_are_found_a_few_keys_at_a_time(monkeypatch):
    monkeypatch.setattr(unused, "PAIRS", 1)
    mask = MASKS["function"].bind(1, 1)
    x = torch.full((1, 1, N, 1), torch.nan)
    q, k = unused.hide_unused(x, x, mask)
    assert q.flatten().isnan().tolist() == [i > 3 for i in range(N)]
    assert k.flatten().isnan().tolist() == [j < 5 for j in range(N)]
