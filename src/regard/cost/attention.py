"""The sizes of one layer's attention: its projections, its heads, its cache."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import ShapeError

__all__ = ["Attention", "LatentAttention"]


@dataclass(frozen=True)
class Attention:
    """Multi-head attention with `kv_heads` key and value heads.

    `qk_norm` is "head" for one norm shared by all heads, "all" for a norm that spans them; `sinks` adds one
    learned logit per head.

    >>> maverick = Attention(heads=40, kv_heads=8, head_dim=128)
    >>> maverick.weights(5120)
    {'w_q': 26214400, 'w_k': 5242880, 'w_v': 5242880, 'w_o': 26214400}
    >>> maverick.parameters(5120)
    62914560
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: str = ""
    sinks: bool = False

    def __post_init__(self) -> None:
        if min(self.heads, self.kv_heads, self.head_dim) < 1:
            raise ShapeError(
                f"attention has {self.heads} heads, {self.kv_heads} kv heads and head_dim {self.head_dim}; "
                "wanted 1 or more of each."
            )
        if self.heads % self.kv_heads:
            raise ShapeError(
                f"attention has {self.heads} heads and {self.kv_heads} kv heads; "
                "heads must be a multiple of kv heads."
            )

    def weights(self, d_model: int) -> dict[str, int]:
        """The numbers in each projection matrix, by name."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"w_q": d_model * query, "w_k": d_model * key, "w_v": d_model * key, "w_o": query * d_model}

    def parameters(self, d_model: int) -> int:
        """The number of parameters: projections, biases, norms of queries and keys, sinks."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found = sum(self.weights(d_model).values())
        found += (query + 2 * key) * self.qkv_bias + d_model * self.out_bias + self.heads * self.sinks
        return found + {"": 0, "head": 2 * self.head_dim, "all": query + key}[self.qk_norm]

    def source_weights(self, d_model: int) -> int:
        """The numbers in the key and value projections; cross-attention applies them to the source."""
        found = self.weights(d_model)
        return found["w_k"] + found["w_v"]

    def pair_flops(self, decoding: bool = False) -> tuple[int, int]:
        """FLOPs per pair of a query and a key in all heads: for its score, and for weighting its value."""
        return 2 * self.heads * self.head_dim, 2 * self.heads * self.head_dim

    @property
    def cached(self) -> int:
        """The numbers per token in the cache."""
        return 2 * self.kv_heads * self.head_dim

    @property
    def attends(self) -> bool:
        """Whether queries are scored against keys; recurrent layers keep a state instead."""
        return True

    @property
    def state(self) -> int:
        """The numbers of a recurrent state, whose size doesn't depend on the length."""
        return 0

    @property
    def wide_state(self) -> int:
        """The numbers of the state that are always in float32."""
        return 0

    @property
    def state_flops(self) -> int:
        """FLOPs per token to update and read the state."""
        return 0

    @property
    def index_flops(self) -> int:
        """FLOPs per pair of a query and an earlier key for an index that selects keys."""
        return 0

    def streamed(self, d_model: int) -> int:
        """The numbers per token that projections and a fused kernel read and write."""
        inner = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
        return 2 * d_model + 2 * inner


@dataclass(frozen=True)
class LatentAttention(Attention):
    """Attention that caches one short latent vector per token (MLA of DeepSeek-V2).

    `head_dim` is the part of a query without positions, `rotary` the part with positions, `value_dim` the
    size of a value. With `q_rank` 0, queries are projected directly. In decoding, W_UK and W_UV are folded
    into query and output, and scores use the cached vectors: fewer bytes, more FLOPs.

    >>> v3 = LatentAttention(128, 128, 128, rotary=64, value_dim=128, q_rank=1536, kv_rank=512)
    >>> v3.cached, v3.parameters(7168)
    (576, 187107328)
    """

    rotary: int = 64
    value_dim: int = 128
    q_rank: int = 0
    kv_rank: int = 512

    def weights(self, d_model: int) -> dict[str, int]:
        query = self.heads * (self.head_dim + self.rotary)
        into_query = {"w_dq": d_model * self.q_rank, "w_uq": self.q_rank * query}
        return {
            **(into_query if self.q_rank else {"w_q": d_model * query}),
            "w_dkv": d_model * (self.kv_rank + self.rotary),
            "w_ukv": self.kv_rank * self.heads * (self.head_dim + self.value_dim),
            "w_o": self.heads * self.value_dim * d_model,
        }

    def parameters(self, d_model: int) -> int:
        biases = (self.q_rank + self.kv_rank + self.rotary) * self.qkv_bias + d_model * self.out_bias
        return sum(self.weights(d_model).values()) + self.q_rank + self.kv_rank + biases

    def source_weights(self, d_model: int) -> int:
        found = self.weights(d_model)
        return found["w_dkv"] + found["w_ukv"]

    def pair_flops(self, decoding: bool = False) -> tuple[int, int]:
        if decoding:
            return 2 * self.heads * (self.kv_rank + self.rotary), 2 * self.heads * self.kv_rank
        return 2 * self.heads * (self.head_dim + self.rotary), 2 * self.heads * self.value_dim

    @property
    def cached(self) -> int:
        return self.kv_rank + self.rotary

    def streamed(self, d_model: int) -> int:
        query, value = self.heads * (self.head_dim + self.rotary), self.heads * self.value_dim
        return 2 * d_model + 2 * (self.q_rank + self.cached + 2 * query + 2 * value)
