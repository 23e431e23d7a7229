"""Lengths, ranks and memory layouts."""

from __future__ import annotations

import pytest
import torch

from engine.harness import differentiated, in_every_dtype, judge, judge_call, on_both_backends, qkv
from oracle import dense_attention, dense_mask, stressed
from regard import attention
from regard.engine.sdpa_backend import kernels
from regard.masks import Causal, Chunk, Documents, Padding, Window
from regard.scores import General

SHAPES = [(1, 1), (1, 65), (239, 1), (799, 3), (113, 203), (63, 65), (1023, 1024)]
# Blocks are 512 rows divided by the group, and 256 for fused calls; tiles are 1024 keys wide.
CROSSING = [(257, 256), (513, 1025), (515, 2049)]


@pytest.mark.share(4)
@pytest.mark.parametrize(("q", "k"), SHAPES + CROSSING)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(100)], ids=str)
@on_both_backends
def test_any_lengths_agree_with_the_oracle(q, k, mask, backend):
    judge_call(qkv(q, k, batch=1, heads=2, kv_heads=1), mask, backend)


@in_every_dtype
@on_both_backends
def test_outlier_features_agree_with_the_oracle(dtype, backend):
    generator = torch.Generator().manual_seed(0)
    leaves = {name: stressed(1, 2, 203, 64, generator=generator, dtype=dtype) for name in "qkv"}
    judge_call(leaves, Causal(), backend)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (6, 3), (7, 1), (40, 8), (66, 2), (600, 1)])
@on_both_backends
def test_any_number_of_heads_agrees_with_the_oracle(heads, kv_heads, backend):
    judge_call(qkv(33, 40, batch=1, heads=heads, kv_heads=kv_heads), Causal() & Window(20), backend)


def test_a_group_is_added_up_in_as_few_equal_parts_as_can_be():
    assert [kernels._parts(group) for group in (1, 32, 33, 64, 71, 600)] == [1, 1, 3, 2, 71, 20]


@pytest.mark.parametrize(("batch", "heads"), [(1, 5), (5, 1), (3, 3)])
@on_both_backends
def test_batches_too_large_for_one_part_agree_with_the_oracle(batch, heads, backend):
    judge_call(qkv(520, 700, batch=batch, heads=heads, dim=8), Causal() & Window(65), backend)


@in_every_dtype
@pytest.mark.parametrize(("dim", "v_dim"), [(16, 5), (3, 64), (1, 1)])
def test_values_may_have_another_dim_than_keys(dim, v_dim, dtype):
    judge_call(qkv(65, 63, kv_heads=2, dim=dim, v_dim=v_dim, dtype=dtype), Causal(), "torch")


@pytest.mark.parametrize("mask", ["padding", "documents", "causal documents"])
@on_both_backends
def test_ragged_batches_beyond_a_tile_are_scheduled_row_by_row(mask, backend):
    n = 1100
    ids = torch.arange(n).expand(3, -1) // torch.tensor([[7], [400], [2000]])
    masks = {
        "padding": Padding.from_lengths([0, 65, n], n) & Window(300),
        "documents": Documents(ids=ids),
        "causal documents": Causal() & Documents(ids=ids),
    }
    judge_call(qkv(n, n, batch=3, heads=1, dim=8), masks[mask], backend)


@pytest.mark.parametrize("n", [1, 65, 300, 1024])
@on_both_backends
def test_ragged_documents_within_a_tile_share_one_schedule(n, backend):
    ids = torch.arange(n).expand(3, -1) // torch.tensor([[7], [40], [2000]])
    judge_call(qkv(n, n, batch=3, heads=1, dim=8), Causal() & Documents(ids=ids), backend)


@pytest.mark.parametrize(
    ("q", "k"),
    [
        ((0, 3, 5, 8), (0, 3, 5, 8)),
        ((2, 3, 0, 8), (2, 3, 5, 8)),
        ((2, 3, 5, 8), (2, 3, 0, 8)),
        ((0, 8), (0, 8)),
    ],
    ids=["no batch", "no query", "no key", "nothing"],
)
@pytest.mark.parametrize("mask", [None, Causal() & Window(2), Chunk(3)], ids=str)
def test_nothing_gives_nothing_and_no_gradient(q, k, mask):
    q, k, v = (torch.randn(shape, requires_grad=True) for shape in (q, k, k))
    out = attention(q, k, v, mask)
    assert out.shape == q.shape
    assert not out.any()
    out.sum().backward()
    for x in (q, k, v):
        assert x.grad.shape == x.shape
        assert not x.grad.any()


@on_both_backends
@pytest.mark.parametrize("mask", [None, Causal(), Window(9)], ids=str)
def test_batches_without_heads_and_single_sequences_work_too(mask, backend):
    q, k, v = torch.randn(3, 5, 33, 8).unbind()
    whole = attention(q[:, None], k[:, None], v[:, None], mask, backend=backend)[:, 0]
    torch.testing.assert_close(attention(q, k, v, mask, backend=backend), whole)
    torch.testing.assert_close(attention(q[2], k[2], v[2], mask, backend=backend), whole[2])


LAYOUTS = {
    "length before heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "heads before batch": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "dim before length": lambda x: x.mT.contiguous().mT,
    "every second number": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "every second row": lambda x: x.repeat_interleave(2, -2)[..., ::2, :],
    "part of something larger": lambda x: torch.nn.functional.pad(x, (3, 1, 2, 5))[..., 2:-5, 3:-1],
    "one batch row for all": lambda x: x[:1].expand(x.shape),
    "one head for all": lambda x: x[:, :1].expand(x.shape),
    "one row for all": lambda x: x[:, :, :1].expand(x.shape),
    "one number for all": lambda x: x[..., :1].expand(x.shape),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(20)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@on_both_backends
def test_the_layout_in_memory_does_not_matter(layout, mask, dtype, backend):
    leaves = {name: LAYOUTS[layout](x) for name, x in qkv(65, 70, kv_heads=2, dtype=dtype).items()}
    judge_call(leaves, mask, backend)


@on_both_backends
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_gradient_does_not_matter(layout, backend):
    leaves, upstream = qkv(65, 65), LAYOUTS[layout](torch.randn(2, 4, 65, 16))
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    out = attention(**leaves, mask=Causal() & Window(20), backend=backend)
    grads, packed = (
        torch.autograd.grad(out, leaves.values(), g, retain_graph=True)
        for g in (upstream, upstream.clone(memory_format=torch.contiguous_format))
    )
    torch.testing.assert_close(grads, packed)


@on_both_backends
def test_inputs_are_left_as_they_were(backend):
    leaves = qkv(65, 65)
    before = {name: x.clone() for name, x in leaves.items()}
    differentiated(lambda x: attention(**x, mask=Causal() & Window(20), backend=backend), leaves)
    assert all(torch.equal(leaves[name], x) for name, x in before.items())


def test_queries_and_keys_of_other_dims_meet_in_a_general_score():
    leaves = {**qkv(33, 65, dim=8), "q": torch.randn(2, 4, 33, 5), "w": torch.randn(5, 8)}
    judge(
        lambda x: attention(x["q"], x["k"], x["v"], Causal(), score=General(x["w"])),
        lambda x: (
            dense_attention(
                x["q"],
                x["k"],
                x["v"],
                dense_mask(Causal(), x["q"], x["k"]),
                scores=lambda q, k: q @ x["w"].to(q.dtype) @ k.mT,
            ).out
        ),
        leaves,
    )
