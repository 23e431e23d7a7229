"""Laws of attention that need no oracle: what a change of the inputs must do to the output."""

from __future__ import annotations

import torch
from torch import Tensor

from choice import Choice, Seeded
from fuzzing.calls import Call, make_call
from fuzzing.target import Target
from regard import attention, observe
from regard.masks import Dense
from regard.scores import Rotary

__all__ = ["LAWS"]

BACKENDS = ("auto", "torch")


def close(got: Tensor, wanted: Tensor, what: str) -> None:
    """Equal up to float64's rounding."""
    size = max(1.0, wanted.abs().nan_to_num(posinf=0.0).max().item()) if wanted.numel() else 1.0
    assert torch.allclose(got, wanted, rtol=0, atol=1e-10 * size), what


def plain_call(choice: Choice) -> Call:
    call = make_call(choice, (torch.float64,), options=False)
    call.backend = choice.pick(BACKENDS)
    return call


def shuffled(choice: Choice, size: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(choice.seed()))


def _out(call: Call, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options) -> Tensor:
    mask = None if allowed is None else Dense(allowed)
    return attention(q, k, v, mask, backend=call.backend, **options)


def keys_in_another_order(choice: Choice, call: Call) -> None:
    q, k, v = (call.leaves[name] for name in "qkv")
    order = shuffled(choice, k.shape[2])
    allowed = call.allowed
    moved = _out(call, q, k[:, :, order], v[:, :, order], None if allowed is None else allowed[..., order])
    close(moved, call.ours(call.leaves), "keys in another order")


def heads_in_another_order(choice: Choice, call: Call) -> None:
    q, k, v = (call.leaves[name] for name in "qkv")
    order = shuffled(choice, k.shape[1])
    group = q.shape[1] // k.shape[1]
    q_order = (order[:, None] * group + torch.arange(group)).flatten()
    allowed = call.allowed
    if allowed is not None and allowed.shape[1] > 1:
        allowed = allowed[:, q_order]
    moved = _out(call, q[:, q_order], k[:, order], v[:, order], allowed)
    close(moved, call.ours(call.leaves)[:, q_order], "heads in another order")


def rows_in_another_order(choice: Choice, call: Call) -> None:
    q, k, v = (call.leaves[name] for name in "qkv")
    order = shuffled(choice, q.shape[0])
    allowed = call.allowed
    if allowed is not None and allowed.shape[0] > 1:
        allowed = allowed[order]
    moved = _out(call, q[order], k[order], v[order], allowed)
    close(moved, call.ours(call.leaves)[order], "batch rows in another order")


def keys_in_two_halves(choice: Choice, call: Call) -> None:
    """Attention over some keys and over the others, merged by their log-sum-exp, is attention over all."""
    q, k, v = (call.leaves[name] for name in "qkv")
    cut, allowed = choice.integer(0, k.shape[2]), call.allowed
    parts = []
    for keys in (slice(0, cut), slice(cut, None)):
        mask = None if allowed is None else Dense(allowed[..., keys])
        parts.append(observe(q, k[:, :, keys], v[:, :, keys], mask, stats=[], backend=call.backend))
    lse = torch.logaddexp(parts[0].lse, parts[1].lse)
    alive = lse.masked_fill(lse == -torch.inf, torch.inf)
    merged = sum(part.out * (part.lse - alive).exp()[..., None] for part in parts)
    whole = observe(q, k, v, call.mask, stats=[], backend=call.backend)
    close(merged, whole.out, "two halves of the keys")
    close(lse, whole.lse, "the log-sum-exp of two halves")


def a_constant_added_to_rows(choice: Choice, call: Call) -> None:
    batch, heads, q_len, k_len = call.shape
    generator = torch.Generator().manual_seed(choice.seed())
    constant = 30 * torch.randn(batch, heads, q_len, 1, generator=generator, dtype=torch.float64)
    moved = attention(
        **call.leaves, mask=call.mask, bias=constant.expand(-1, -1, -1, k_len), backend=call.backend
    )
    close(moved, call.ours(call.leaves), "a constant added to a row's scores")


def positions_moved_along(choice: Choice, call: Call) -> None:
    """Rotary positions matter by their differences alone."""
    q, k, v = (call.leaves[name] for name in "qkv")
    dim = 2 * choice.integer(1, 4)
    q, k = (x.repeat(1, 1, 1, dim)[..., :dim] for x in (q, k))
    rotary, by = Rotary(dim), choice.integer(1, 1000)
    q_at = torch.arange(k.shape[2] - q.shape[2], k.shape[2]) + q.shape[2]
    k_at = torch.arange(k.shape[2]) + q.shape[2]
    outs = [
        _out(call, rotary.rotate(q, q_at + shift), rotary.rotate(k, k_at + shift), v, call.allowed)
        for shift in (0, by)
    ]
    close(outs[1], outs[0], f"positions moved by {by}")


def hidden_keys_replaced(choice: Choice, call: Call) -> None:
    """What no query may see does not matter, garbage included."""
    q, k, v = (call.leaves[name].clone() for name in "qkv")
    hidden = torch.rand(k.shape[2], generator=torch.Generator().manual_seed(choice.seed())) < 0.4
    allowed = ~hidden if call.allowed is None else call.allowed & ~hidden
    allowed = allowed.expand(*q.shape[:3], k.shape[2])
    clean = _out(call, q, k, v, allowed)
    k[:, :, hidden] = choice.pick((0.0, 1e300, torch.nan, torch.inf))
    v[:, :, hidden] = choice.pick((0.0, -torch.inf, torch.nan))
    close(_out(call, q, k, v, allowed), clean, "garbage in hidden keys")


RULES = (
    keys_in_another_order,
    heads_in_another_order,
    rows_in_another_order,
    keys_in_two_halves,
    a_constant_added_to_rows,
    positions_moved_along,
    hidden_keys_replaced,
)


def check(seed: int) -> int:
    choice = Seeded(seed)
    rule = choice.pick(RULES)
    with torch.no_grad():
        rule(choice, plain_call(choice))
    return 1


LAWS = Target("laws", "one law of attention, for one random call", check, tested=100)
