"""The projections of somebody's attention module, recognised by their names and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Projections", "projections"]

QUERY = (
    "q",
    "q_proj",
    "query",
    "wq",
    "to_q",
    "q_lin",
    "q_linear",
    "linear_q",
    "query_proj",
    "queries",
    "fc_q",
)
KEY = tuple(name.replace("queries", "keys").replace("query", "key").replace("q", "k") for name in QUERY)
VALUE = tuple(name.replace("queries", "values").replace("query", "value").replace("q", "v") for name in QUERY)
FUSED = (
    "qkv",
    "c_attn",
    "wqkv",
    "qkv_proj",
    "in_proj",
    "to_qkv",
    "query_key_value",
    "attn",
    "qkv_linear",
    "fused",
)
FUSED_KV = ("kv", "kv_proj", "to_kv", "wkv")
OUT = (
    "o", "o_proj", "out_proj", "c_proj", "proj", "wo", "to_out", "out", "dense", "output", "proj_out",
    "out_lin", "fc", "fc_out", "linear_out", "fc_o", "resid_proj", "projection",
)  # fmt: skip


@dataclass(frozen=True)
class Projections:
    """Weights as `(in, out)` with their biases, and whether there is an output projection."""

    q: tuple[Tensor, Tensor | None]
    k: tuple[Tensor, Tensor | None]
    v: tuple[Tensor, Tensor | None]
    out: tuple[Tensor, Tensor | None] | None
    order: str = "split"


def projections(module: nn.Module, heads: int | None = None) -> list[Projections]:
    """Every reading of a module's weights as W_q, W_k, W_v and W_o; none if they are not recognised.

    >>> [len(p.q) for p in projections(nn.MultiheadAttention(8, 2))]
    [2]
    """
    found = [_read(_named(module, flip)) for flip in (False, True)]
    wanted = [p for p in found if p is not None]
    if len(wanted) == 2 and not _free(module):
        wanted = wanted[:1]
    if heads:
        wanted += [_by_head(p, heads) for p in list(wanted) if p.order == "fused"]
    return wanted


def _key(name: str) -> str:
    return name.lower().replace("w_", "w").removesuffix(".weight").removesuffix("_weight")


def _free(module: nn.Module) -> bool:
    """Whether weights are bare parameters, which may be multiplied from either side."""
    return any(p.dim() == 2 and "in_proj" not in name for name, p in module.named_parameters(recurse=False))


def _named(module: nn.Module, flip: bool) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Every weight by the last part of its name, turned to (in, out)."""
    found: dict[str, tuple[Tensor, Tensor | None]] = {}
    for path, child in module.named_modules():
        weight = getattr(child, "weight", None)
        if not path or not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(child, nn.Embedding):
            continue
        names = path.split(".")
        # Sequential(Linear, Dropout) carries its name one level up.
        name = names[-2] if names[-1].isdigit() and len(names) > 1 else names[-1]
        bias = getattr(child, "bias", None)
        bias = bias if isinstance(bias, Tensor) else None
        found.setdefault(_key(name), (weight if type(child).__name__ == "Conv1D" else weight.mT, bias))
    for name, weight in module.named_parameters(recurse=False):
        if weight.dim() == 2:
            bias = getattr(module, name.replace("weight", "bias"), None) if "weight" in name else None
            turned = weight.mT if ("in_proj" in name) != flip else weight
            found.setdefault(_key(name), (turned, bias if isinstance(bias, Tensor) else None))
    return found


def _one(
    found: dict[str, tuple[Tensor, Tensor | None]], names: tuple[str, ...]
) -> tuple[Tensor, Tensor | None] | None:
    return next((found[name] for name in names if name in found), None)


def _cut(pair: tuple[Tensor, Tensor | None], sizes: list[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
    weights = pair[0].split(sizes, -1)
    biases = [None] * len(sizes) if pair[1] is None else pair[1].split(sizes, -1)
    return zip(weights, biases, strict=True)


def _read(found: dict[str, tuple[Tensor, Tensor | None]]) -> Projections | None:
    q, k, v = _one(found, QUERY), _one(found, KEY), _one(found, VALUE)
    out, fused, pair = _one(found, OUT), _one(found, FUSED), _one(found, FUSED_KV)
    if q is not None and k is not None and v is not None:
        return Projections(q, k, v, out)
    if q is not None and pair is not None:
        k, v = _cut(pair, [pair[0].shape[-1] // 2] * 2)
        return Projections(q, k, v, out)
    if fused is None:
        return None
    width, total = fused[0].shape
    if total == 3 * width:
        q, k, v = _cut(fused, [width] * 3)
        return Projections(q, k, v, out, "fused")
    if total > width and (total - width) % 2 == 0:
        q, k, v = _cut(fused, [width, (total - width) // 2, (total - width) // 2])
        return Projections(q, k, v, out)
    return None


def _by_head(p: Projections, heads: int) -> Projections:
    """The same fused weight read head by head: q, k and v of head 0, then of head 1, ..."""
    weight = torch.cat([p.q[0], p.k[0], p.v[0]], -1)
    bias = None if p.q[1] is None else torch.cat([b for _, b in (p.q, p.k, p.v) if b is not None])
    parts = weight.unflatten(-1, (heads, 3, -1)).unbind(-2)
    biases = [None] * 3 if bias is None else bias.unflatten(-1, (heads, 3, -1)).unbind(-2)
    q, k, v = (
        (w.flatten(-2), None if b is None else b.flatten()) for w, b in zip(parts, biases, strict=True)
    )
    return Projections(q, k, v, p.out, "by head")
