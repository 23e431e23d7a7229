"""Recordings made of random queries and keys: no model, any shape, any mask."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.maps import observe
from regard.masks import Causal, Documents, Mask, Window
from regard.models import Layer, Recording
from regard.models.call import AttentionCall
from regard.models.identity import ModelIdentity
from regard.models.sites import Site
from regard.models.watch import ROWS

TOKENS = ["<script>alert(1)</script>", "&amp;", '"><img src=x onerror=alert(2)>', " the", "\n"]

# What an encoder reads, so that it is not taken for what the decoder writes.
WORDS = [" die", " alte", " Katze", " schläft"]


def layer(
    index: int,
    queries: int,
    keys: int,
    mask: Mask | None,
    *,
    role: str = "decoder",
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 8,
    dtype: torch.dtype = torch.float32,
    **options,
) -> Layer:
    """One layer of random vectors, recorded as `watch` records it."""
    made = torch.Generator().manual_seed(index)
    q = (2 * torch.randn(1, heads, queries, dim, generator=made)).to(dtype)
    k, v = torch.randn(2, 1, kv_heads, keys, dim, generator=made).to(dtype)
    call = AttentionCall(q, k, v, mask, **options)
    found = Layer(Site(f"model.layers.{index}.self_attn", role, index))
    found.begin(call, observe(q, k, v, stats=list(ROWS), **call.options), keep=True)
    return found


def recording(*layers: Layer, text: bool = True) -> Recording:
    """A recording of these layers; its tokens look like HTML."""
    made = Recording(ModelIdentity("somewhere/random", "Random", "0" * 64))
    for one in layers:
        made.put(one)
    if text:
        n = max(one.rows for one in layers)
        made.token_ids["decoder"] = torch.arange(n)[None] % len(TOKENS)
        made.attach(_Tokenizer())
    return made


class _Tokenizer:
    name_or_path = "random"
    is_fast = False

    def decode(self, ids: list[int]) -> str:
        return "".join((TOKENS + WORDS)[i] for i in ids)


def odd() -> Recording:
    """Odd lengths: causal, a window, documents, and cross-attention with other lengths."""
    documents = Causal() & Documents(lengths=[300, 1, 400])
    return recording(
        layer(0, 701, 701, Causal()),
        layer(1, 701, 701, Causal() & Window(65)),
        layer(2, 701, 701, documents, softcap=3.0),
        layer(0, 63, 301, None, role="cross", kv_heads=4),
    )


def translated() -> Recording:
    """An encoder that read 67 words, and a decoder that wrote 23 tokens and looked at them."""
    made = recording(
        layer(0, 23, 23, Causal()),
        layer(0, 67, 67, None, role="encoder"),
        layer(0, 23, 67, None, role="cross", kv_heads=4),
    )
    made.token_ids["decoder"] = torch.arange(23)[None] % len(TOKENS)
    made.token_ids["encoder"] = len(TOKENS) + torch.arange(67)[None] % len(WORDS)
    return made


def saved(made: Recording, path: Path) -> Path:
    """The recording on disk."""
    made.save(path)
    return path
