"""Layers whose counts were measured on a model's modules, for any family."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.attention import Attention
from regard.cost.shape import FeedForward

__all__ = ["CountedAttention", "CountedFeedForward"]


@dataclass(frozen=True)
class CountedAttention(Attention):
    """The token mixer of a layer by its counts: attention, a linear or state-space layer, or both.

    `learned` is the number of parameters, `matrices` the numbers in the matrices that each token is
    multiplied with, `moved` the numbers that these products read and write. An allowed pair of a query and a
    key takes `score` and `mix` FLOPs; an index takes `index` FLOPs per earlier key. The cache holds `kept`
    numbers per token and a state of `fixed` numbers, of which `wide` are always in float32; updating and
    reading the state takes `token_flops` per token. `decoding` replaces `score` and `mix` in decoding steps
    on latent vectors.

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
    """A feed-forward part by its counts, all 0 for a layer without one.

    `learned` is the number of parameters, `dense` the numbers in the matrices that every token is multiplied
    with, `expert` the numbers in the matrices of one expert, `idle` the parameters that a token doesn't use.

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
