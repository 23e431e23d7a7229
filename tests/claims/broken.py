"""For every claim something broken in the place of the real thing, and the verdict it must then get.

Each is small: what is broken shows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.atlas import Atlas, cards_of
from regard.checking import check
from regard.checking.printed import PRINTED
from regard.claims import Kind
from regard.claims.cost import score_prints
from regard.claims.explanations import Cuts, Doubts
from regard.claims.recurrent import ByAttention, recurrent
from regard.claims.serial import scanned
from regard.claims.tiles import eager
from regard.cost import FULL, Print, preset
from regard.engine import attention
from regard.maps import observe
from regard.masks import Causal, Window
from regard.scores import Rotary

__all__ = ["BROKEN", "MENDED", "clock"]


def clock(**seconds: float) -> Callable[[Any], dict[str, float]]:
    """A clock that says what it is told: by the task's name, or by its length."""

    def read(tasks: Any) -> dict[str, float]:
        return {name: seconds.get(name) or float(name) for name in tasks}

    return read


def sparse(scores: Tensor) -> Tensor:
    """Weights in proportion to the square of the score: positive and normalised, and not softmax."""
    return scores.square() / scores.square().sum(-1, keepdim=True)


def corrected() -> dict[str, str]:
    """The printed numbers with the wrong ones put right."""
    return {name: right(text) for name, text in PRINTED.items()}


def right(text: str) -> str:
    """An example with its wrong numbers put right, from its end to its beginning."""
    tail = ""
    for cell in reversed(check(text).wrong):
        text, _, after = text.rpartition(cell.printed.text)
        tail = f"{cell.exact:.6e}{after}{tail}"
    return text + tail


def absolute(x: Tensor, at: Tensor) -> Tensor:
    """Positions that are added: scores then know where both stand."""
    angles = at[:, None].double() * torch.logspace(0, -4, x.shape[-1], dtype=torch.float64)
    return (x.double() + angles.sin()).to(x.dtype)


def convolving(attends: bool) -> Callable[[Tensor], Tensor]:
    """A block that mixes neighbours with a convolution too."""
    torch.manual_seed(0)
    layer = nn.Conv1d(16, 16, 3, padding=1)
    return lambda x: x + layer(x.mT).mT * (2 if attends else 1)


def misprinted() -> list[Print]:
    return [replace(found, printed="7 MB") if "float32" in found.what else found for found in score_prints()]


def half(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Tiles whose sums are kept in bfloat16."""
    return eager(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()


def countable(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers and equal weights: no sum has to be rounded."""
    q, k = torch.zeros(2, 1, 1, n, 8).unbind()
    return q, k, torch.randint(0, 9, (1, 1, n, 8)).float()


def selfish() -> Atlas:
    """A model of one head that looks at itself and nowhere else."""
    x = 40 * torch.eye(128)[None, None]
    return Atlas("selfish", 128, tuple(cards_of(observe(x, x, x, Causal(), stats=()).map)))


def alike() -> Atlas:
    """A model whose heads are all the same."""
    q = torch.randn(1, 1, 65, 8).expand(1, 8, 65, 8)
    return Atlas("alike", 65, tuple(cards_of(observe(q, q, q, Causal(), stats=()).map)))


def pointing() -> Doubts:
    """A model that says what it looks at: the doubts of its one head are the doubts of its prediction."""
    heads = torch.linspace(0, 0.8, 65, dtype=torch.float64)
    return Doubts(3 * heads, 1 - heads, heads[None])


def faithful() -> Cuts:
    """A model in which an edge matters as much as it weighs."""
    weight = torch.linspace(0.01, 1, 63, dtype=torch.float64)
    return Cuts(weight, weight.square())


def opposed() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """A similarity, and one that finds the opposite."""
    return {"dot product": lambda q, k: k @ q, "opposite": lambda q, k: -(k @ q)}


def forgetful(length: int, depths: Sequence[float]) -> list[list[float]]:
    """A model that loses three facts the nearer they stand to the middle, and the longer the text is."""
    return [[3 + fact + abs(2 * depth - 1) - length / 1000 for depth in depths] for fact in range(3)]


def choosy() -> Tensor:
    """Two heads that look at the first key and at nothing else."""
    weights = torch.zeros(2, 9, 63, dtype=torch.float64)
    weights[:, :, 0] = 1
    return weights


def plain_drift(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention that is off by three thousandths."""
    return 1.003 * eager(q, k, v)


SECONDS = {"attention": 1.0, "recurrent": 1.0, "linear, by doubling": 1.0}
MAVERICK = preset("llama-4-maverick")
UNTRAINED = {"trained": False}
SHORT = (256, 512, 1024)

BROKEN: dict[str, tuple[dict[str, Any], Kind]] = {
    "scale-std": ({"divisor": float, "pairs": 500, "dims": (4, 64, 256)}, Kind.FOLKLORE),
    "scale-64": ({"printed": {128: "11.13", 64: "8"}, "pairs": 500}, Kind.MISPRINT),
    "scale-saturates": ({"without": math.sqrt, "rows": 30, "dims": (4, 64, 1024)}, Kind.FOLKLORE),
    "scale-training": (
        {"without": lambda d: 1e-6, "dims": (16,), "seeds": 1},
        Kind.HOLDS,
    ),
    "saturates-64": ({"divisor": 1e-3, "keys": (8, 63), "rows": 65}, Kind.HOLDS),
    "logits-8-sigma": ({"divisor": 8.0, "pairs": 6500}, Kind.FOLKLORE),
    "dots-512": ({"d": 16384, "rows": 9, "keys": 63}, Kind.HOLDS),
    "softmax-budget": ({"normalise": torch.sigmoid}, Kind.FOLKLORE),
    "softmax-maxent": ({"normalise": sparse, "rows": 3}, Kind.FOLKLORE),
    "temperature": ({"factor": 0.5, "temperature": 2.0}, Kind.FOLKLORE),
    "row-prints": ({"printed": corrected()}, Kind.HOLDS),
    "tied-qk": ({"tied": False}, Kind.FOLKLORE),
    "similarity": ({"measures": opposed(), "queries": 2, "keys": 65}, Kind.FOLKLORE),
    "mask-inf": ({"infinite": -5.0}, Kind.FOLKLORE),
    "mask-after": (
        {"masked": lambda scores, seen: scores.masked_fill(~seen, -math.inf).softmax(-1)},
        Kind.FOLKLORE,
    ),
    "causal-future": ({"mask": None, "model": False}, Kind.FOLKLORE),
    "padding-leak": ({"hide": True, "words": 33, "pads": 9}, Kind.FOLKLORE),
    "cheating": ({"mask": Causal(), "steps": 20}, Kind.FOLKLORE),
    "brackets": ({"layers": (0,), "steps": 20}, Kind.FOLKLORE),
    "order-blind": ({"position": Rotary(16), "n": 9}, Kind.FOLKLORE),
    "rope-relative": ({"turn": absolute}, Kind.FOLKLORE),
    "one-hop": ({"reader": recurrent, "lengths": (16, 32, 64), "steps": 5}, Kind.FOLKLORE),
    "maxent-rotary": ({"scores": lambda n: -0.01 * torch.arange(1, n).double()}, Kind.FOLKLORE),
    "rnn-bottleneck": (
        {"model": lambda state: ByAttention(8), "lengths": (2, 8), "steps": 120},
        Kind.FOLKLORE,
    ),
    "rnn-serial": (
        {"recurrent": lambda: scanned, "clock": clock(**SECONDS), "lengths": (16, 64)},
        Kind.FOLKLORE,
    ),
    "heads-same-budget": ({"heads": 1, "steps": 20}, Kind.FOLKLORE),
    "w_o-needed": ({"without": nn.Linear(32, 32)}, Kind.FOLKLORE),
    "only-attention-mixes": ({"block": convolving, "dim": 16}, Kind.FOLKLORE),
    "loop-over-heads": ({"clock": clock(together=1.0, loop=1.0), "lengths": (1, 65)}, Kind.FOLKLORE),
    "quadratic": ({"scores": lambda q, k: q.mT @ k}, Kind.FOLKLORE),
    "gqa-saves": ({"kv_heads": 10}, Kind.MISPRINT),
    "irope-saves": (
        {"shape": replace(MAVERICK, layers=tuple(replace(layer, reach=FULL) for layer in MAVERICK.layers))},
        Kind.FOLKLORE,
    ),
    "maverick-params": ({"attention": replace(MAVERICK.layers[0].attention, kv_heads=40)}, Kind.MISPRINT),
    "tiles-memory": ({"attend": eager, "lengths": SHORT}, Kind.FOLKLORE),
    "flash-exact": ({"attend": half, "n": 65}, Kind.FOLKLORE),
    "flash-linear": ({"attend": eager, "lengths": SHORT}, Kind.FOLKLORE),
    "flash-asymptotic": (
        {
            "attend": partial(attention, mask=Causal() & Window(64), backend="torch"),
            "lengths": SHORT,
            "clock": clock(),
        },
        Kind.FOLKLORE,
    ),
    "flash-faster": ({"clock": clock(plain=1.0, fused=1.0), "lengths": (63, 65)}, Kind.FOLKLORE),
    "drift-fp16": ({"tiled": plain_drift, "n": 65, "claimed": 3e-3}, Kind.HOLDS),
    "deterministic": ({"inputs": countable, "n": 256}, Kind.FOLKLORE),
    "sparse-asymptotic": ({"patterns": {"every pair": lambda n: Causal()}}, Kind.HOLDS),
    "window-linear": ({"mask": Causal(), "lengths": SHORT, "clock": clock()}, Kind.FOLKLORE),
    "sparse-blocks-paths": ({"masks": {"everything": Window(64)}}, Kind.FOLKLORE),
    "sinks": (UNTRAINED, Kind.FOLKLORE),
    "diagonal": ({"atlas": selfish()}, Kind.HOLDS),
    "lost-in-middle": ({"search": forgetful}, Kind.HOLDS),
    "needle-length": ({"search": forgetful}, Kind.HOLDS),
    "power-law": (UNTRAINED, Kind.FOLKLORE),
    "heads-specialise": (UNTRAINED, Kind.FOLKLORE),
    "pruning-not-free": (UNTRAINED | {"tokens": 65, "pieces": 2}, Kind.FOLKLORE),
    "one-map-is-little": ({"atlas": alike()}, Kind.FOLKLORE),
    "each-token": ({"weights": choosy}, Kind.FOLKLORE),
    "two-vectors": ({"depth": 1}, Kind.FOLKLORE),
    "weights-explain": ({"edges": faithful, "value": 1.0}, Kind.HOLDS),
    "weights-probabilities": ({"doubts": pointing}, Kind.HOLDS),
    "cross-attention": ({"across": False, "steps": 20}, Kind.FOLKLORE),
    "additive-vs-dot": (
        {"clock": clock(additive=1.0, dot=2.0), "dims": (16,), "steps": 150},
        Kind.CONDITION,
    ),
}

# Where the real thing holds with a condition, the same without what made the condition.
MENDED: dict[str, tuple[dict[str, Any], Kind]] = {
    "scale-std": ({"shared": 0.0, "pairs": 500, "dims": (4, 64, 256)}, Kind.HOLDS),
    "scale-saturates": ({"dims": (1024,), "rows": 30}, Kind.HOLDS),
    "softmax-budget": ({"sink": None}, Kind.HOLDS),
    "mask-inf": ({"finite": -math.inf}, Kind.HOLDS),
    "quadratic": ({"printed": misprinted}, Kind.MISPRINT),
    "maverick-params": ({"per_layer": "69.2M"}, Kind.MISPRINT),
    "flash-exact": ({"attend": eager, "n": 65}, Kind.HOLDS),
    "flash-faster": ({"clock": clock(plain=3.0, fused=1.0), "lengths": (63, 65)}, Kind.HOLDS),
    "sparse-blocks-paths": ({"masks": {"window": Window(5)}}, Kind.HOLDS),
    "weights-explain": ({"edges": faithful}, Kind.CONDITION),
    "temperature": ({"temperature": 0.2}, Kind.FOLKLORE),
    "additive-vs-dot": ({"clock": clock(additive=1.0, dot=2.0), "dims": (16,), "steps": 1}, Kind.FOLKLORE),
}
