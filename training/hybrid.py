"""The bundled model's architecture in plain PyTorch, attending with regard: windows, and a few global layers.

A Llama of which two layers in three see a window and know positions (rotary), and the third sees everything
and knows none. Parameter names are those of transformers' SmolLM3ForCausalLM, so weights move between the two
unchanged. Tokens of a batch lie in one row, (batch * q), everywhere but in attention: whatever the context,
the compiled pieces see one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

import regard
from regard import Causal, Window
from regard.masks import Mask

__all__ = ["Attention", "Hybrid", "Shape", "rotary"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. The default is the bundled model: 13.08 million parameters, 26.2 MB in bfloat16.

    >>> Shape().parameters
    13081728
    >>> Shape().windowed
    (True, True, False, True, True, False, True, True, False)
    """

    vocabulary: int = 4096
    width: int = 384
    layers: int = 9
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 768
    window: int = 512
    every: int = 3
    context: int = 65536
    theta: float = 10000.0
    epsilon: float = 1e-5

    @cached_property
    def windowed(self) -> tuple[bool, ...]:
        """Which layers see a window and know positions: all but every third."""
        return tuple((layer + 1) % self.every != 0 for layer in range(self.layers))

    @property
    def parameters(self) -> int:
        """How many numbers the weights are; the embedding serves as the output matrix too."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        return self.vocabulary * self.width + self.layers * layer + self.width

    def to_config(self) -> dict:
        """What transformers' config.json says of such a model."""
        kinds = {True: "sliding_attention", False: "full_attention"}
        return {
            "architectures": ["SmolLM3ForCausalLM"],
            "model_type": "smollm3",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
            "no_rope_layers": [int(windowed) for windowed in self.windowed],
            "layer_types": [kinds[windowed] for windowed in self.windowed],
            "use_sliding_window": True,
            "sliding_window": self.window,
            "rms_norm_eps": self.epsilon,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "pad_token_id": None,
            "dtype": "bfloat16",
        }


class Hybrid(nn.Module):
    """A language model: token ids in, logits of the next token out."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.model = _Stack(shape, dropout)
        self.apply(_initialise)
        # Each layer adds to the residual stream twice: smaller writes keep its variance at one layer's.
        for layer in self.model.layers:
            for writer in (layer.self_attn.o_proj, layer.mlp.down_proj):
                nn.init.normal_(writer.weight, std=0.02 / (2 * shape.layers) ** 0.5)

    def forward(self, ids: Int[Tensor, "batch q"]) -> Float[Tensor, "batch q vocabulary"]:
        logits = F.linear(self.model(ids), self.model.embed_tokens.weight)
        return logits.unflatten(0, ids.shape)

    def losses(
        self, ids: Int[Tensor, "batch q"], targets: Int[Tensor, "batch q"]
    ) -> Float[Tensor, "batch q"]:
        """Each token's cross-entropy in nats; 0 where the target is -100."""
        return _losses(self.model(ids), self.model.embed_tokens.weight, targets.flatten()).view(ids.shape)

    def loss(
        self, ids: Int[Tensor, "batch q"], targets: Int[Tensor, "batch q"], weights: Float[Tensor, "batch q"]
    ) -> Float[Tensor, ""]:
        """The weighted mean of the losses."""
        return self.compiled(_loss)(
            self.model(ids), self.model.embed_tokens.weight, targets.flatten(), weights.flatten()
        )

    def compiled(self, piece):
        """A piece as it runs in training: compiled, once `compile_pieces` was called."""
        return self.model.pieces.get(piece, piece) if self.training else piece

    def compile_pieces(self) -> None:
        """Compile what lies between attention calls; all layers share it."""
        self.model.pieces.update({piece: torch.compile(piece) for piece in (_enter, _leave, _loss)})


class _Stack(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(_Layer(shape, windowed) for windowed in shape.windowed)
        self.norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.dropout = dropout
        self.pieces: dict = {}
        cos, sin = rotary(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Int[Tensor, "batch q"]) -> Float[Tensor, "tokens width"]:
        batch, length = ids.shape
        tables = self.cos, self.sin
        if length > len(self.cos):
            tables = tuple(table.to(ids.device) for table in rotary(self.shape, length))
        turns = tuple(table[:length].repeat(batch, 1) for table in tables)
        dropout = self.dropout if self.training else 0.0
        pieces = self.pieces if self.training else {}
        x = F.dropout(self.embed_tokens(ids.flatten()), dropout)
        for layer in self.layers:
            x = layer(x, batch, turns, dropout, pieces)
        return self.norm(x)


class _Layer(nn.Module):
    def __init__(self, shape: Shape, windowed: bool) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.self_attn = Attention(shape, windowed)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.mlp = _MLP(shape)

    def forward(
        self, x: Tensor, batch: int, turns: tuple[Tensor, Tensor], dropout: float, pieces: dict
    ) -> Float[Tensor, "tokens width"]:
        enter, leave = pieces.get(_enter, _enter), pieces.get(_leave, _leave)
        attention, mlp = self.self_attn, self.mlp
        weights = [p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
        gain, epsilon = self.input_layernorm.weight, self.input_layernorm.eps
        q, k, v = enter(x, gain, epsilon, *weights, attention.head_dim, turns if attention.windowed else None)
        mixed = attention(q, k, v, batch)
        weights = [p.weight for p in (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
        return leave(x, mixed, self.post_attention_layernorm.weight, epsilon, *weights, dropout)


class Attention(nn.Module):
    """Grouped-query attention of one layer: causal, in a window or over everything before."""

    def __init__(self, shape: Shape, windowed: bool) -> None:
        super().__init__()
        self.head_dim, self.windowed = shape.head_dim, windowed
        self.mask: Mask = Causal() & Window(shape.window) if windowed else Causal()
        inner, kv_inner = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.v_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, batch: int) -> Float[Tensor, "tokens inner"]:
        """What the heads give, of queries, keys and values of (tokens, heads, dim)."""
        out = regard.attention(*self.rows(q, k, v, batch), mask=self.mask)  # (batch, heads, q, dim)
        return out.transpose(1, 2).flatten(0, 1).flatten(1)

    @staticmethod
    def rows(q: Tensor, k: Tensor, v: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """The same as (batch, heads, q, dim), which is how attention is asked."""
        q, k, v = (x.unflatten(0, (batch, -1)).transpose(1, 2) for x in (q, k, v))
        return q, k, v


class _MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)


def _enter(
    x: Tensor, gain: Tensor, epsilon: float, q: Tensor, k: Tensor, v: Tensor, head_dim: int,
    turns: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries, keys and values of a layer's input, (tokens, heads, dim); turned where positions are known."""
    h = F.rms_norm(x, gain.shape, gain, epsilon)
    projected = F.linear(h, torch.cat([q, k, v])).unflatten(-1, (-1, head_dim))
    rows, keys, values = projected.split([w.shape[0] // head_dim for w in (q, k, v)], 1)
    if turns is not None:
        cos, sin = (table[:, None] for table in turns)
        rows, keys = _turn(rows, cos, sin), _turn(keys, cos, sin)
    return rows.contiguous(), keys.contiguous(), values.contiguous()


def _leave(
    x: Tensor, mixed: Tensor, gain: Tensor, epsilon: float, out: Tensor, gate: Tensor, up: Tensor,
    down: Tensor, dropout: float,
) -> Float[Tensor, "tokens width"]:  # fmt: skip
    """What a layer hands on: its input, what its heads found, and what its MLP makes of both."""
    x = x + F.dropout(F.linear(mixed, out), dropout)
    h = F.rms_norm(x, gain.shape, gain, epsilon)
    gated, risen = F.linear(h, torch.cat([gate, up])).chunk(2, -1)
    return x + F.dropout(F.linear(F.silu(gated) * risen, down), dropout)


def _losses(x: Tensor, vocabulary: Tensor, targets: Tensor) -> Float[Tensor, " tokens"]:
    return F.cross_entropy(F.linear(x, vocabulary).float(), targets, reduction="none", ignore_index=-100)


def _loss(x: Tensor, vocabulary: Tensor, targets: Tensor, weights: Tensor) -> Float[Tensor, ""]:
    return (_losses(x, vocabulary, targets) * weights).sum() / weights.sum()


def rotary(shape: Shape, length: int | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles, (length, half a head); of the whole context unless length is given."""
    # transformers computes the exponents in float32 too: other roundings would drift over many positions.
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(
        torch.arange(length or shape.context, dtype=torch.float32), 1.0 / shape.theta**exponents
    )
    return angles.cos(), angles.sin()


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
