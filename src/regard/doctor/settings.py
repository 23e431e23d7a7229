"""Reads sizes from a module's attributes by their usual names: heads, widths and lengths."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

__all__ = ["head_width", "heads_of", "lengths_of", "widths_of"]

HEADS = (
    r"(num|n|number)_?(of_)?(q_|query_|local_|attention_|attn_)*heads?"
    r"|heads|nheads?|h|nh|heads?_?(num|count|number|n)|no_heads|num_attention_heads"
)
HEAD_WIDTH = (
    r"d_?k|d_?h|d_?q|d_?head|head_?(dim|dimension|size|width)|dim_?(per_)?head|per_head_dim|key_size"
    r"|attention_head_size"
)
MODEL = (
    r"d_?model|embed_?(dim|size)|emb_?(dim|size)?|hidden_?(size|dim)|dim|n_?embd|model_?(dim|dimension|size)"
    r"|width|d_?in|in_features|features|channels|num_hiddens|n_?hidden|n_state|size|d|c|input_dim"
)
LENGTH = r"window_?size|num_?patches|seq_?len|n_?tokens|group_?size|patch_?num|n_?patches"


def _values(module: nn.Module, pattern: str) -> Iterator[Any]:
    """Settings with a matching name in a module, its parts and their configurations."""
    for part in module.modules():
        holders = [
            part,
            *(getattr(part, name, None) for name in ("config", "cfg", "args", "params", "hparams")),
        ]
        for holder in holders:
            try:
                held = holder if isinstance(holder, dict) else vars(holder) if holder is not None else {}
            except TypeError:
                continue
            for name, value in held.items():
                if isinstance(name, str) and re.fullmatch(pattern, name.strip("_").lower()):
                    yield value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def heads_of(module: nn.Module) -> int | None:
    """The number of query heads, if a module has it as an attribute.

    >>> heads_of(nn.MultiheadAttention(8, 2))
    2
    """
    return next((value for value in map(_whole, _values(module, HEADS)) if value), None)


def head_width(module: nn.Module) -> int | None:
    """The width of one head, if a module has it as an attribute."""
    return next((value for value in map(_whole, _values(module, HEAD_WIDTH)) if value), None)


def widths_of(module: nn.Module) -> Iterator[int]:
    """Widths of tokens to try, the likeliest first.

    >>> next(widths_of(nn.MultiheadAttention(8, 2)))
    8
    """
    found = [value for value in map(_whole, _values(module, MODEL)) if value]
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if isinstance(part, nn.Linear) and part.in_features:
            found.append(part.in_features)
        elif isinstance(part, nn.Conv1d | nn.Conv2d):
            found.append(part.in_channels)
        elif type(part).__name__ == "Conv1D" and weight is not None:
            found.append(weight.shape[0])
    for parameter in module.parameters():
        found += [size for size in parameter.shape if size > 1] if not is_lazy(parameter) else []
    # A module without weights takes any width.
    yield from list(dict.fromkeys([*found, 16]))[:6]


def lengths_of(module: nn.Module, usual: int) -> Iterator[int]:
    """Numbers of tokens to try: the usual one, and fixed lengths that the module names."""
    found = [usual]
    for value in _values(module, LENGTH):
        size = (
            math.prod(value) if isinstance(value, tuple | list) and all(map(_whole, value)) else _whole(value)
        )
        found += [size, size * size, size + 1] if size else []
    yield from [n for n in dict.fromkeys([*found, 4, 16]) if n <= 256]
