"""Cases that compare several ranks with one process; they run in the ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import regard
from distributed.catalogue import BATCH, DIM, HEADS, KV_HEADS, LENGTH, MASKS, OPTIONS, random
from regard.distributed import Sharding, attention, shard
from regard.distributed.ranks import SENT

LAYOUTS = {
    "contiguous": lambda n, ranks: Sharding.contiguous(n, ranks),
    "head tail": lambda n, ranks: Sharding.head_tail(n, ranks),
    "unequal": lambda n, ranks: Sharding.of_lengths(
        [3 + r for r in range(ranks - 1)] + [n - sum(3 + r for r in range(ranks - 1))]
    ),
    "documents": lambda n, ranks: Sharding.by_document([7, 20, 5, n - 32], ranks),
    "one has none": lambda n, ranks: Sharding.of_lengths(
        [0] * (ranks > 1)
        + [n // max(1, ranks - 1)] * max(0, ranks - 2)
        + [n - n // max(1, ranks - 1) * max(0, ranks - 2)]
    ),
}


def learning(options: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors of the options that learn, made to."""
    found = []
    for value in options.values():
        tensors = [value] if isinstance(value, torch.Tensor) else []
        if not tensors and hasattr(value, "__dict__"):
            tensors = [x for x in vars(value).values() if isinstance(x, torch.Tensor)]
        found += [x.requires_grad_() for x in tensors]
    return found


def inputs(n: int, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = ((HEADS, DIM), (KV_HEADS, DIM), (KV_HEADS, DIM + 2))
    return [random(BATCH, h, n, d, seed=i, dtype=dtype) for i, (h, d) in enumerate(shapes)]


def alone(n: int, mask: str, options: str, dtype: torch.dtype) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output and gradients of one process."""
    q, k, v = (x.requires_grad_() for x in inputs(n, dtype))
    given = OPTIONS[options](n)
    learned = learning(given)
    out = regard.attention(q, k, v, MASKS[mask](n), **given)
    (out * random(*out.shape, seed=9, dtype=dtype)).sum().backward()
    return out.detach(), [x.grad for x in (q, k, v, *learned)]


def together(
    group, n: int, mask: str, options: str, dtype: torch.dtype, layout: Sharding, exchange: str, **more: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """This rank's output and gradients; those of what learns are summed over the ranks."""
    q, k, v = (shard(x, layout, group=group).requires_grad_() for x in inputs(n, dtype))
    given = OPTIONS[options](n)
    learned = learning(given)
    out = attention(
        q,
        k,
        v,
        MASKS[mask](n),
        group=group,
        sharding=layout,
        exchange=exchange,
        timeout=30.0,
        **given,
        **more,
    )
    up = random(*out.shape[:2], n, out.shape[3], seed=9, dtype=dtype)
    (out * shard(up, layout, group=group)).sum().backward()
    grads = [x.grad for x in learned]
    for grad in grads:
        dist.all_reduce(grad, group=group)
    return out.detach(), [q.grad, k.grad, v.grad, *grads]


def attends(
    group,
    mask: str = "causal",
    options: str = "plain",
    layout: str = "contiguous",
    exchange: str = "ring",
    n: int = LENGTH,
    dtype: str = "float64",
) -> None:
    """Forward and backward agree with one process."""
    kind = getattr(torch, dtype)
    held = LAYOUTS[layout](n, dist.get_world_size(group))
    exact, exact_grads = alone(n, mask, options, kind)
    out, grads = together(group, n, mask, options, kind, held, exchange)
    close = {"float64": (1e-9, 1e-10), "float32": (1e-4, 1e-5), "bfloat16": (2e-2, 2e-2)}[dtype]
    torch.testing.assert_close(out, shard(exact, held, group=group), rtol=close[0], atol=close[1])
    for index, (got, wanted) in enumerate(zip(grads, exact_grads, strict=True)):
        scale = float(wanted.abs().max()) or 1.0
        wanted = shard(wanted, held, group=group) if index < 3 else wanted
        torch.testing.assert_close(got / scale, wanted / scale, rtol=close[0], atol=close[1])


def repeats(group, exchange: str) -> None:
    """Two runs give the same bits."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    first, second = (
        together(group, LENGTH, "causal", "all", torch.float32, held, exchange) for _ in range(2)
    )
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))


def sends(group, mask: str, layout: str, exchange: str) -> list[int]:
    """Bytes this rank sent forward and backward, and what the plan says."""
    held = LAYOUTS[layout](LENGTH, dist.get_world_size(group))
    q, k, v = (shard(x, held, group=group).requires_grad_() for x in inputs(LENGTH, torch.float32))
    given = {"group": group, "sharding": held, "exchange": exchange}
    plan = regard.distributed.explain_exchange(q, k, v, MASKS[mask](LENGTH), **given)
    before = SENT.bytes
    out = attention(q, k, v, MASKS[mask](LENGTH), **given)
    middle = SENT.bytes
    out.sum().backward()
    return [middle - before, SENT.bytes - middle, plan.forward_bytes, plan.backward_bytes]


def attends_transposed(group, exchange: str) -> None:
    """Shards that lie in memory as (batch, length, heads, dim), or are expanded."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    q, k, v = inputs(LENGTH, torch.float64)
    v = v[:1, :1].expand(BATCH, KV_HEADS, -1, -1)
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = regard.attention(*whole, MASKS["causal"](LENGTH))
    exact.sum().backward()
    lain = []
    for x in (q, k):
        part = shard(x, held, group=group)
        lain.append(part.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_())
    lain.append(shard(v[:1, :1], held, group=group).expand(BATCH, KV_HEADS, -1, -1).requires_grad_())
    assert not any(x.is_contiguous() for x in lain)
    out = attention(*lain, MASKS["causal"](LENGTH), group=group, sharding=held, exchange=exchange)
    out.sum().backward()
    torch.testing.assert_close(out, shard(exact.detach(), held, group=group))
    for x, full in zip(lain, whole, strict=True):
        torch.testing.assert_close(x.grad, shard(full.grad, held, group=group))


def attends_with_fewer_queries(group, exchange: str) -> None:
    """The last query sits on the last key, whatever holds them."""
    size = dist.get_world_size(group)
    queries, keys = Sharding.contiguous(13, size), Sharding.head_tail(LENGTH, size)
    q, k, v = inputs(LENGTH, torch.float64)
    q = q[:, :, -13:]
    exact = regard.attention(q, k, v, MASKS["causal window"](LENGTH))
    parts = shard(q, queries, group=group), *(shard(x, keys, group=group) for x in (k, v))
    given = {"group": group, "sharding": queries, "key_sharding": keys, "exchange": exchange}
    out = attention(*parts, MASKS["causal window"](LENGTH), **given)
    torch.testing.assert_close(out, shard(exact, queries, group=group))


def biased_by_own_rows(group) -> None:
    """A dense bias of this rank's queries and all keys, as a rank would make it."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    q, k, v = inputs(LENGTH, torch.float64)
    bias = random(1, HEADS, LENGTH, LENGTH, seed=24).requires_grad_()
    exact = regard.attention(q, k, v, bias=bias)
    exact.sum().backward()
    own = shard(bias.detach(), held, group=group).requires_grad_()
    parts = [shard(x, held, group=group) for x in (q, k, v)]
    for exchange in ("gather", "ring"):
        own.grad = None
        out = attention(*parts, bias=own, group=group, sharding=held, exchange=exchange)
        out.sum().backward()
        torch.testing.assert_close(out, shard(exact.detach(), held, group=group))
        torch.testing.assert_close(own.grad, shard(bias.grad, held, group=group))


def mesh_of(group, names: tuple[str, ...], shape: tuple[int, ...]) -> dist.DeviceMesh:
    ranks = torch.tensor(dist.get_process_group_ranks(group)).view(shape)
    if len(shape) == 1:
        return dist.DeviceMesh.from_group(group, "cpu", mesh=ranks, mesh_dim_names=names)
    return dist.DeviceMesh("cpu", ranks, mesh_dim_names=names)


def attends_to_dtensors(group) -> None:
    """DTensors that are sharded along the sequence, of a length that does not divide."""
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = mesh_of(group, ("cp",), (dist.get_world_size(group),))
    whole = [x.requires_grad_() for x in inputs(LENGTH, torch.float64)]
    exact = regard.attention(*whole, MASKS["causal"](LENGTH))
    exact.sum().backward()
    parts = [distribute_tensor(x.detach(), mesh, [Shard(2)]).requires_grad_() for x in whole]
    out = attention(*parts, MASKS["causal"](LENGTH))
    assert isinstance(out, DTensor)
    assert out.shape == exact.shape
    out.to_local().sum().backward()
    torch.testing.assert_close(out.full_tensor(), exact.detach())
    for x, full in zip(parts, whole, strict=True):
        torch.testing.assert_close(x.grad.full_tensor(), full.grad)


def attends_on_a_mesh(group) -> None:
    """Two sequences side by side, each on one dimension of a mesh of 2 x 2."""
    mesh = mesh_of(group, ("dp", "cp"), (2, 2))
    own = mesh["cp"]
    held = Sharding.contiguous(LENGTH, 2)
    q, k, v = (x * (1 + mesh.get_local_rank("dp")) for x in inputs(LENGTH, torch.float64))
    exact = regard.attention(q, k, v, MASKS["causal"](LENGTH))
    parts = [shard(x, held, group=own) for x in (q, k, v)]
    out = attention(*parts, MASKS["causal"](LENGTH), group=own, sharding=held)
    torch.testing.assert_close(out, shard(exact, held, group=own))


def cuts_and_joins(group) -> None:
    for layout in LAYOUTS.values():
        held = layout(LENGTH, dist.get_world_size(group))
        x = random(2, LENGTH, 3)
        part = shard(x, held, 1, group=group)
        assert torch.equal(part, x[:, held.positions(dist.get_rank(group))])
        assert torch.equal(regard.distributed.unshard(part, held, 1, group=group), x)


def keeps_garbage_out(group, exchange: str) -> None:
    """NaN in padded keys, their values and the padded queries' neighbours."""
    held = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    mask = MASKS["causal"](LENGTH) & MASKS["padding"](LENGTH)
    q, k, v = inputs(LENGTH, torch.float64)
    exact = regard.attention(q, k, v, mask)
    k[1, :, LENGTH - 30 :], v[1, :, LENGTH - 30 :] = torch.nan, torch.inf
    parts = [shard(x, held, group=group).requires_grad_() for x in (q, k, v)]
    out = attention(*parts, mask, group=group, sharding=held, exchange=exchange)
    torch.testing.assert_close(out, shard(exact, held, group=group))
    out.sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in parts)


def refuses_stale_keys(group) -> None:
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    q, k, v = (shard(x, held, group=group) for x in inputs(LENGTH, torch.float64))
    q.requires_grad_()
    out = attention(q, k, v, group=group, sharding=held, exchange="ring")
    k.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
