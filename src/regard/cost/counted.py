"""Layers whose sizes were read off a model's own modules, whatever its family."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.attention import Attention
from regard.cost.shape import FeedForward

__all__ = ["CountedAttention", "CountedFeedForward"]


@dataclass(frozen=True)
class CountedAttention(Attention):
    """What mixes tokens in a layer, by its counts: attention, a linear or state-space layer, or both.

    `learned` counts its parameters, `matrices` the numbers in the matrices that each token is multiplied
    by, `moved` the numbers that go in and out of those products. A pair of a query and a key takes `score`
    and `mix` FLOPs where the reach allows it, and `index` FLOPs are taken for every earlier key, to choose
    among them. The cache holds `kept` numbers for each token, and `fixed` numbers at any length, of which
    `wide` are in float32 whatever the dtype of the rest; updating and reading those takes `token_flops` for
    each token. `decoding` replaces `score` and `mix` where one token is written on keys and values that are
    kept as short vectors.

    >>> mamba = CountedAttention(1, 1, 1, learned=100, matrices=90, fixed=64, token_flops=256)
    >>> mamba.cached, mamba.state, mamba.parameters(8), mamba.attends
    (0, 64, 100, False)
    """

    learned: int = 0
    matrices: int = 0
    moved: int = 0
    score: int = 0
    mix: int = 0
    index: int = 0
    kept: int = 0
    fixed: int = 0
    wide: int = 0
    token_flops: int = 0
    decoding: tuple[int, int] | None = None

    @property
    def attends(self) -> bool:
        return self.score > 0

    @property
    def cached(self) -> int:
        return self.kept

    @property
    def state(self) -> int:
        return self.fixed

    @property
    def wide_state(self) -> int:
        return self.wide

    @property
    def state_flops(self) -> int:
        return self.token_flops

    @property
    def index_flops(self) -> int:
        return self.index

    def weights(self, d_model: int) -> dict[str, int]:
        return {"all": self.matrices}

    def parameters(self, d_model: int) -> int:
        return self.learned

    def pair_flops(self, decoding: bool = False) -> tuple[int, int]:
        return self.decoding if decoding and self.decoding else (self.score, self.mix)

    def streamed(self, d_model: int) -> int:
        return self.moved


@dataclass(frozen=True)
class CountedFeedForward(FeedForward):
    """A feed-forward part by its counts; 0 everywhere for a layer that has none.

    `learned` counts all parameters, `dense` the numbers in the matrices that every token is multiplied by,
    `expert` the numbers in the matrices of one expert, `idle` the parameters that a token does not use.

    >>> feed = CountedFeedForward(1, learned=75, dense=10, experts=6, active=2, expert=10, idle=40)
    >>> feed.weights(8, 2), feed.active_parameters(8)
    (30, 35)
    """

    learned: int = 0
    dense: int = 0
    expert: int = 0
    idle: int = 0
    moved: int = 0

    def weights(self, d_model: int, experts: int) -> int:
        return self.dense + self.expert * experts

    def parameters(self, d_model: int) -> int:
        return self.learned

    def active_parameters(self, d_model: int) -> int:
        return self.learned - self.idle

    def streamed(self, d_model: int) -> int:
        return self.moved
