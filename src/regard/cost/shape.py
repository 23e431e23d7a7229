"""The shape of a model: all that its cost depends on, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from regard.cost.attention import Attention
from regard.cost.reach import FULL, Reach
from regard.errors import ShapeError

__all__ = ["Extra", "FeedForward", "Layer", "ModelShape"]


@dataclass(frozen=True)
class FeedForward:
    """The feed-forward part of a layer; with `experts`, `active` of them and `shared` serve each token.

    >>> FeedForward(11008, gated=True).parameters(4096)
    135266304
    >>> FeedForward(14336, gated=True, experts=8, active=2).active_parameters(4096)
    352354304
    """

    width: int
    gated: bool = False
    bias: bool = False
    experts: int = 0
    active: int = 0
    shared: int = 0
    router_bias: bool = False
    shared_gate: bool = False

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ShapeError(f"the feed-forward width is {self.width}; wanted 1 or more.")
        if self.experts and not 1 <= self.active <= self.experts:
            raise ShapeError(
                f"{self.active} of {self.experts} experts are active; wanted from 1 to {self.experts}."
            )

    @property
    def matrices(self) -> int:
        """Matrices in one expert: a gate makes three of two."""
        return 3 if self.gated else 2

    def weights(self, d_model: int, experts: int) -> int:
        """Numbers in the matrices that serve a token, if so many experts do."""
        widths = self.width * (experts if self.experts else 1) + self.shared
        return self.matrices * d_model * widths + d_model * (self.experts + self.shared_gate)

    def parameters(self, d_model: int) -> int:
        """All that is learned here, every expert included."""
        return self._with_biases(d_model, self.experts)

    def active_parameters(self, d_model: int) -> int:
        """What one token uses of it."""
        return self._with_biases(d_model, self.active)

    def streamed(self, d_model: int) -> int:
        """Numbers one token moves through these products, each one's in- and output."""
        used = (self.active if self.experts else 1) + bool(self.shared)
        widths = self.width * (self.active if self.experts else 1) + self.shared
        return used * 2 * d_model + self.matrices * widths

    def _with_biases(self, d_model: int, experts: int) -> int:
        one = ((self.matrices - 1) * self.width + d_model) * self.bias
        found = self.weights(d_model, experts) + one * (experts if self.experts else 1)
        return found + self.experts * self.router_bias


@dataclass(frozen=True)
class Layer:
    """One layer: what its queries see, its attention, its feed-forward part and its norms.

    `cross` adds attention to the encoder's output, of the same sizes; `encoder` layers run once, over the
    source. `norm_numbers`, where given, counts the parameters of norms that are not of the model's width.

    >>> layer = Layer(Attention(12, 12, 64), FeedForward(3072), Reach("window", 256))
    >>> layer.reach
    window:256
    """

    attention: Attention
    ffn: FeedForward
    reach: Reach = FULL
    causal: bool = True
    cross: bool = False
    encoder: bool = False
    norms: int = 2
    norm_numbers: int | None = None

    @property
    def attends(self) -> str:
        """What it sees in words: its reach, a recurrent state, both, or no other token.

        >>> Layer(Attention(12, 12, 64), FeedForward(3072)).attends
        'full'
        """
        parts = [repr(self.reach)] if self.attention.attends else []
        return " and ".join(parts + ["state"] * bool(self.attention.state)) or "none"

    def norm_parameters(self, d_model: int, each: int) -> int:
        """Parameters of its norms, of which every number of the width has `each`."""
        return self.norms * d_model * each if self.norm_numbers is None else self.norm_numbers

    @property
    def attentions(self) -> int:
        """How many attentions the layer holds."""
        return 2 if self.cross else 1


@dataclass(frozen=True)
class Extra:
    """Something a family has beside its layers: a pooler, a table of relative positions.

    `weights` are the numbers in matrices that every token is multiplied by, or one token where `once`; and
    like the head, they are applied where logits are made if `with_head`.
    """

    name: str
    parameters: int
    weights: int = 0
    once: bool = False
    with_head: bool = False


@dataclass(frozen=True)
class ModelShape:
    """A model as the cost of it sees it.

    `context` is the length it was trained for, None where there is no limit to name. `positions` and `types`
    are rows of learned embeddings. `norm_parameters` is 1 for a scale alone and 2 for scale and shift.
    `tied` shares the embedding with the head. `embedding_dim` is the width of an embedding that is projected
    to `d_model`.

    >>> gpt2 = ModelShape.uniform("gpt2", layers=12, d_model=768, heads=12, ffn=3072, vocab=50257)
    >>> len(gpt2.layers), gpt2.layers[0].attention.head_dim
    (12, 64)
    """

    name: str
    d_model: int
    layers: tuple[Layer, ...]
    vocab: int
    context: int | None = None
    tied: bool = True
    head: bool = True
    head_bias: bool = False
    positions: int = 0
    types: int = 0
    embedding_norm: bool = False
    final_norms: int = 1
    norm_parameters: int = 1
    embedding_dim: int | None = None
    extras: tuple[Extra, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.d_model < 1 or self.vocab < 1 or not self.layers:
            raise ShapeError(
                f"{self.name} has d_model {self.d_model}, a vocabulary of {self.vocab} and "
                f"{len(self.layers)} layers; wanted 1 or more of each."
            )

    @classmethod
    def uniform(
        cls,
        name: str,
        *,
        layers: int,
        d_model: int,
        heads: int,
        ffn: int | FeedForward,
        vocab: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        pattern: tuple[Reach, ...] = (FULL,),
        causal: bool = True,
        **more,
    ) -> ModelShape:
        """A model of equal layers, whose reach follows a pattern over and over.

        >>> interleaved = ModelShape.uniform("x", layers=5, d_model=64, heads=4, ffn=256, vocab=100,
        ...                                  pattern=(Reach("window", 8), Reach()))
        >>> [layer.reach for layer in interleaved.layers]
        [window:8, full, window:8, full, window:8]
        """
        if heads < 1 or (head_dim is None and d_model % heads):
            raise ShapeError(
                f"{name} has d_model {d_model} and {heads} heads; d_model must be a multiple of heads, "
                "or give head_dim."
            )
        sizes = {key: more.pop(key) for key in ("qkv_bias", "out_bias", "qk_norm", "sinks") if key in more}
        attention = Attention(heads, kv_heads or heads, head_dim or d_model // heads, **sizes)
        part = FeedForward(ffn) if isinstance(ffn, int) else ffn
        layer = Layer(attention, part, causal=causal, norms=more.pop("norms", 2))
        reaches = islice(cycle(pattern), layers)
        return cls(name, d_model, tuple(replace(layer, reach=reach) for reach in reaches), vocab, **more)

    @property
    def embedded(self) -> int:
        """The width of a row of the embedding."""
        return self.embedding_dim or self.d_model

    @property
    def heads(self) -> int:
        """The most query heads that a layer has; 0 where no layer attends."""
        return max(layer.attention.heads * layer.attention.attends for layer in self.layers)

    @property
    def decodes(self) -> bool:
        """Whether it writes token by token, and so has a cache."""
        return any(layer.causal for layer in self.layers)

    @property
    def has_encoder(self) -> bool:
        """Whether a source is read before the first token is written."""
        return any(layer.cross for layer in self.layers)

    @property
    def kinds(self) -> dict[str, int]:
        """How many layers see what.

        >>> from regard.cost import preset
        >>> preset("llama-4-maverick").kinds
        {'chunk:8192': 36, 'full': 12}
        """
        found: dict[str, int] = {}
        for layer in self.layers:
            found[layer.attends] = found.get(layer.attends, 0) + 1
        return found
