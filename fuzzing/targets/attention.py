"""Attention and its gradients on every CPU backend, against the dense oracle in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from choice import Seeded
from fuzzing.calls import Call, make_call
from fuzzing.target import Target

__all__ = ["ATTENTION", "HALF"]

# The project's rule: so many times the error of eager attention in the same dtype.
OUTPUT, GRADIENT = 2.0, 3.0
# Roundings that each term of a sum goes through.
ROUNDINGS = 16


def upstream_of(out: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of what comes after: the same numbers for a call of this dtype and for its oracles.

    Rounded for each of them, it would differ: in bfloat16 by more than what is judged.
    """
    return torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype).to(out.dtype)


def differentiated(
    function, leaves: dict[str, Tensor], dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """The output of a call and the gradients of its leaves."""
    own = {name: x.detach().to(dtype or x.dtype).requires_grad_() for name, x in leaves.items()}
    out = function(own)
    upstream = upstream_of(out, leaves["q"].dtype)
    grads = torch.autograd.grad(out, [*own.values()], upstream, allow_unused=True, materialize_grads=True)
    return {"out": out.detach(), **dict(zip(own, grads, strict=True))}


def floors(call: Call, upstream: Tensor) -> dict[str, float]:
    """What rounding alone may cost each result, where eager may be right by luck.

    A gradient is a sum of terms that may cancel: each is rounded by its own size, not by that of the sum.
    Scores are rounded too, by `score_terms`, and a row's weights change by as much: to first order a weight
    w_ij by the factor 1 + d_ij - sum_l w_il d_il, where d are the roundings of its row's scores.
    """
    leaves = {name: x.double() for name, x in call.leaves.items()}
    group = call.shape[1] // leaves["k"].shape[1]
    q, k, v = leaves["q"], *(leaves[name].repeat_interleave(group, 1) for name in "kv")
    dense = call.dense_steps(leaves)
    upstream, weights = upstream.double().abs(), dense.weights
    off = score_terms(call, q, k, leaves)
    off = off + (weights * off).sum(-1, keepdim=True)
    out = ((weights * (ROUNDINGS + off)) @ v.abs()).max().item()
    if call.dtype != torch.float64:
        off = torch.zeros(())
    # Both halves of p (dp - delta), each in full; then what the roundings of the scores change in each.
    reach = upstream @ v.abs().mT
    terms = weights * (reach + (weights * reach).sum(-1, keepdim=True)) * (ROUNDINGS + off)
    terms += weights * (weights * off * reach).sum(-1, keepdim=True)
    steep = abs(call.options.get("scale", 1.0)) or 1.0
    largest = q.abs().max().item() * k.abs().max().item() * max(call.shape[2:])
    for name in ("w", "w_q", "w_k", "w_v"):
        largest *= max(1.0, leaves[name].abs().max().item()) if name in leaves else 1.0
    shared = dict.fromkeys(leaves, terms.sum().item() * steep * max(1.0, largest))
    precise = {
        "v": ((weights * (ROUNDINGS + off)).mT @ upstream).max().item() * group,
        "q": (terms @ k.abs()).max().item() * steep,
        "k": (terms.mT @ q.abs()).max().item() * steep * group,
    }
    plain = not {"w", "w_q", "w_k", "w_v"} & {*leaves}
    sizes = {**shared, **(precise if plain else {}), "out": out}
    unit = torch.finfo(torch.float64 if call.dtype == torch.float64 else torch.float32).eps
    return {name: unit * size for name, size in sizes.items()}


def score_terms(call: Call, q: Tensor, k: Tensor, leaves: dict[str, Tensor]) -> Tensor | float:
    """The sizes of all terms of each score, (batch, heads, q, k): what its rounding is measured in.

    Below float64 the oracle is exact, and eager's own error says what the rounding of a score costs; but for
    one that comes through a matrix, a sum of sums. In float64 the oracle rounds as much as what it judges.
    """
    steep = abs(call.options.get("scale", q.shape[-1] ** -0.5 if "w" not in leaves else 1.0))
    if "w" in leaves:
        return (q.abs() @ leaves["w"].abs() @ k.abs().mT) * steep
    if call.dtype != torch.float64:
        return 0.0
    bias = call.plain(leaves).get("bias", leaves.get("bias"))
    added = torch.zeros((), dtype=torch.float64) if bias is None else bias.abs()
    dot = 0.0 if "w_q" in leaves else (q.abs() @ k.abs().mT) * steep
    return (dot + added).expand(call.shape[0], call.shape[1], *call.shape[2:])


def check(seed: int) -> int:
    return judge(make_call(Seeded(seed), (torch.float64, torch.float32)))


def check_half(seed: int) -> int:
    return judge(make_call(Seeded(seed), (torch.bfloat16, torch.float16)))


def judge(call: Call) -> int:
    got, eager = differentiated(call.ours, call.leaves), differentiated(call.dense, call.leaves)
    exact = differentiated(call.dense, call.leaves, torch.float64)
    known = floors(call, upstream_of(exact["out"], call.dtype))
    for name, tensor in got.items():
        wanted, factor = exact[name], OUTPUT if name == "out" else GRADIENT
        assert tensor.shape == wanted.shape, name
        assert tensor.dtype == (call.dtype if name == "out" else call.leaves[name].dtype), name
        if not bool(eager[name].isfinite().all()):
            continue
        assert bool(tensor.isfinite().all()), f"{name} is not finite and eager's is"
        error = (tensor.double() - wanted).abs().max().item()
        by_eager = factor * (eager[name].double() - wanted).abs().max().item()
        written = torch.finfo(tensor.dtype).eps * wanted.abs().max().item()
        allowed = by_eager + written + max(known[name], 0.0 if call.dtype == torch.float64 else 1e-5)
        assert error <= allowed, f"{name} is off by {error:.3g}; allowed is {allowed:.3g} ({call.backend})"
    return 1


ATTENTION = Target("attention", "one call and its gradients, against dense float64", check, tested=50)
HALF = Target("half", "the same in bfloat16 and float16", check_half, tested=30)
