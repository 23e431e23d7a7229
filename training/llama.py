"""The Llama architecture in plain PyTorch, attending with regard.

Parameter names are those of transformers' LlamaForCausalLM, so weights move between the two unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

import regard

__all__ = ["Llama", "Shape", "rotary"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. The default is the bundled model: 5.77 million parameters, 11.5 MB in bfloat16.

    >>> Shape().parameters
    5771520
    """

    vocabulary: int = 4096
    width: int = 256
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 512
    context: int = 2048
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """How many numbers the weights are; the embedding serves as the output matrix too."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        return self.vocabulary * self.width + self.layers * layer + self.width

    def to_config(self) -> dict:
        """What transformers' config.json says of such a model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
            "rms_norm_eps": self.epsilon,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "dtype": "bfloat16",
        }


class Llama(nn.Module):
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
        return F.linear(self.model(ids), self.model.embed_tokens.weight)

    def loss(self, ids: Int[Tensor, "batch q"], targets: Int[Tensor, "batch q"]) -> Float[Tensor, ""]:
        """Mean cross-entropy in nats; targets of -100 do not count."""
        return F.cross_entropy(self(ids).float().flatten(0, 1), targets.flatten(), ignore_index=-100)


class _Stack(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(_Layer(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.dropout = nn.Dropout(dropout)
        cos, sin = rotary(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Int[Tensor, "batch q"]) -> Float[Tensor, "batch q width"]:
        x = self.dropout(self.embed_tokens(ids))
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class _Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.mlp = _MLP(shape)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Float[Tensor, "batch q width"]:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        inner, kv_inner = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.v_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Float[Tensor, "batch q width"]:
        q, k, v = self.project(x, cos, sin)
        out = _attend(q, k, v)  # (batch, heads, q, dim)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as attention gets them, rotated."""
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (batch, heads, q, dim)
                   for p in (self.q_proj, self.k_proj, self.v_proj))  # fmt: skip
        return _turn(q, cos, sin), _turn(k, cos, sin), v


class _MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


# regard looks at the values before it chooses a kernel, which a compiled graph cannot: the graph stops here.
@torch.compiler.disable
def _attend(q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "batch heads q dim"]:
    return regard.attention(q, k, v, mask=regard.Causal())


def rotary(shape: Shape) -> tuple[Float[Tensor, "context half"], Float[Tensor, "context half"]]:
    """Cosines and sines of every position's angles, half as many as a head has dimensions."""
    # transformers computes the exponents in float32 too: other roundings would drift over 2,048 positions.
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float32), 1.0 / shape.theta**exponents)
    return angles.cos(), angles.sin()


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
