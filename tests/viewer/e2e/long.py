"""A recording of a long text, made in seconds."""

from __future__ import annotations

import torch

from regard.maps import observe
from regard.masks import Causal
from regard.models import Layer, Recording
from regard.models.identity import ModelIdentity
from regard.models.segment import Segment
from regard.models.sites import Site

__all__ = ["long_recording"]

# The shape of the bundled model.
HEADS, KV_HEADS, DIM = 8, 4, 32


def long_recording(tokens: int) -> Recording:
    """One causal layer of random queries and keys.

    A turn of the queries and keys of a head together leaves its scores as they are. So all heads here are one
    head seen from other sides, and one pass over one map, in place of eight, gives the lse of all of them.
    """
    made = torch.Generator().manual_seed(0)
    q, k = 2 * torch.randn(1, 1, tokens, DIM, generator=made), torch.randn(1, 1, tokens, DIM, generator=made)
    seen = observe(q, k, k, mask=Causal(), stats=[])
    turns = torch.linalg.qr(torch.randn(KV_HEADS, DIM, DIM, generator=made)).Q
    keys = k @ turns
    queries = (q @ turns).repeat_interleave(HEADS // KV_HEADS, 1)
    layer = Layer(Site("model.layers.0.self_attn", "decoder", 0))
    layer.mask = layer.first_mask = Causal()
    layer.options = {"scale": seen.map.problem.scoring.scale, "softcap": None, "sink": None}
    layer.segments = [Segment(seen.lse.expand(1, HEADS, -1).contiguous(), {}, queries, keys, keys)]
    recording = Recording(ModelIdentity("somewhere/random", "Random", "0" * 64))
    recording.put(layer)
    recording.token_ids["decoder"] = torch.arange(tokens)[None]
    return recording
