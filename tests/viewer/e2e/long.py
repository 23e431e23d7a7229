"""A recording of a long text, made in seconds."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.masks import StreamingSinks
from regard.models import Layer, Recording
from regard.models.identity import ModelIdentity
from regard.models.segment import Segment
from regard.models.sites import Site

__all__ = ["long_recording"]

# The shape of the bundled model.
HEADS, KV_HEADS, DIM = 8, 4, 32
# So many different keys there are.
KEYS = 97


def long_recording(tokens: int, sinks: int, window: int) -> Recording:
    """One layer of random queries, and of keys that say one of few things.

    So the lse of a query needs no pass over its row: it is how often it sees each of the few, and how much it
    likes them. A turn of the queries and keys of a head together leaves its scores as they are, so all heads
    here are one head seen from other sides, with one lse.
    """
    made = torch.Generator().manual_seed(0)
    q, few = 2 * torch.randn(tokens, DIM, generator=made), torch.randn(KEYS, DIM, generator=made)
    says = torch.randint(KEYS, (tokens,), generator=made)
    scores = (q.double() @ few.double().T) * DIM**-0.5
    lse = (scores + _seen(says, sinks, window).log()).logsumexp(-1).float()
    turns = torch.linalg.qr(torch.randn(KV_HEADS, DIM, DIM, generator=made)).Q
    keys = (few[says] @ turns)[None]
    queries = (q @ turns)[None].repeat_interleave(HEADS // KV_HEADS, 1)
    layer = Layer(Site("model.layers.0.self_attn", "decoder", 0))
    layer.mask = layer.first_mask = StreamingSinks(sinks, window)
    layer.options = {"scale": DIM**-0.5, "softcap": None, "sink": None}
    layer.segments = [Segment(lse.expand(1, HEADS, -1).contiguous(), {}, queries, keys, keys)]
    recording = Recording(ModelIdentity("somewhere/random", "Random", "0" * 64))
    recording.put(layer)
    recording.token_ids["decoder"] = torch.arange(tokens)[None]
    return recording


def _seen(says: Tensor, sinks: int, window: int) -> Tensor:
    """How often each query sees each of the few keys: in its window, and among the sinks before that."""
    upto = torch.nn.functional.one_hot(says, KEYS).cumsum(0).double()
    before = torch.nn.functional.pad(upto, (0, 0, 1, 0))
    start = (torch.arange(len(says)) + 1 - window).clamp(min=0)
    return upto - before[start] + before[start.clamp(max=sinks)]
