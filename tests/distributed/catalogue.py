"""What is tried: every mask, score, bias and option, by name, for sequences of odd length."""

from __future__ import annotations

import torch

from regard.masks import (
    BigBird,
    Causal,
    Chunk,
    Dense,
    Documents,
    Global,
    Longformer,
    Mask,
    Padding,
    Prefix,
    RandomBlocks,
    StreamingSinks,
    Strided,
    Where,
    Window,
)
from regard.scores import Additive, ALiBi, Bias, Concat, General, RelativeBias

BATCH, HEADS, KV_HEADS, DIM = 2, 4, 2, 8
LENGTH = 61


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64).to(dtype)


class Near(Mask):
    """A user's mask that defines only its pairs."""

    def allows(self, q, k):
        return (q - k).abs() % 7 < 3


class Slope(Bias):
    """A user's bias that depends on where a key is."""

    def tile(self, q_pos, k_pos):
        return 0.01 * (q_pos[:, None] + 2 * k_pos)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=generator(5)) < 0.6


MASKS = {
    "none": lambda n: None,
    "causal": lambda n: Causal(),
    "window": lambda n: Window(9),
    "causal window": lambda n: Causal() & Window(9),
    "chunk": lambda n: Causal() & Chunk(13),
    "prefix": lambda n: Causal() | Prefix(11),
    "global": lambda n: Window(5) | Global([0, 17]),
    "strided": lambda n: Causal() & Strided(4),
    "random blocks": lambda n: RandomBlocks(block=8, per_row=2, length=n),
    "documents": lambda n: Causal() & Documents(lengths=[7, 20, n - 27]),
    "interleaved documents": lambda n: Documents(ids=torch.arange(n) % 3),
    "ragged documents": lambda n: Documents(ids=torch.stack([torch.arange(n) // 10, torch.arange(n) // 23])),
    "padding": lambda n: Padding.from_lengths([n, n - 30], k=n),
    "dense": lambda n: Dense(flags(n, n)),
    "dense heads": lambda n: Dense(flags(BATCH, HEADS, n, n)),
    "where": lambda n: Where(lambda b, h, q, k: (q >= k) & ((k + h) % 3 > 0)),
    "not": lambda n: ~Causal(),
    "own": lambda n: Near(),
    "big bird": lambda n: BigBird(block=4, length=n, window_blocks=1, random_blocks=1, global_blocks=1),
    "longformer": lambda n: Longformer(5, [0]),
    "streaming sinks": lambda n: StreamingSinks(2, 9),
}

SCORES: dict[str, object] = {
    "additive": lambda: Additive(random(DIM, 5, seed=11), random(DIM, 5, seed=12), random(5, seed=13)),
    "concat": lambda: Concat(random(2 * DIM, 5, seed=14), random(5, seed=15)),
    "general": lambda: General(random(DIM, DIM, seed=16)),
    "general heads": lambda: General(random(HEADS, DIM, DIM, seed=17)),
}


def modified(score, b, h, q, k):
    return score + 0.01 * h + 0.1 * torch.cos(q * 1.0 + 2.0 * k) + 0.05 * b


OPTIONS = {
    "plain": lambda n: {},
    "scale": lambda n: {"scale": 0.5},
    "softcap": lambda n: {"softcap": 2.0},
    "sink": lambda n: {"sink": random(HEADS, seed=21)},
    "score_mod": lambda n: {"score_mod": modified},
    "alibi": lambda n: {"bias": ALiBi(random(HEADS, seed=22).abs())},
    "relative": lambda n: {"bias": RelativeBias(random(HEADS, 8, seed=23), max_distance=20)},
    "own bias": lambda n: {"bias": Slope()},
    "dense bias": lambda n: {"bias": random(1, HEADS, n, n, seed=24)},
    "key bias": lambda n: {"bias": random(BATCH, 1, 1, n, seed=25)},
    "all": lambda n: {
        "bias": random(1, HEADS, n, n, seed=24),
        "softcap": 3.0,
        "sink": random(HEADS, seed=21),
        "score_mod": modified,
    },
    **{name: (lambda n, make=make: {"score": make()}) for name, make in SCORES.items()},  # type: ignore
}
