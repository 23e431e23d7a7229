"""The shape of a model: the sizes that its cost depends on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from regard.cost.attention import Attention
from regard.cost.reach import FULL, Reach
from regard.errors import ShapeError

__all__ = ["Extra", "FeedForward", "Layer", "ModelShape"]


@dataclass(frozen=True)
class FeedForward:
    """The feed-forward part of a layer; with `experts`, each token uses `active` of them, and all `shared`.

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
        """The matrices of one expert: three with a gate, else two."""
        return 3 if self.gated else 2

    def weights(self, d_model: int, experts: int) -> int:
        """The numbers in the matrices that a token uses, with this many experts."""
        widths = self.width * (experts if self.experts else 1) + self.shared
        return self.matrices * d_model * widths + d_model * (self.experts + self.shared_gate)

    def parameters(self, d_model: int) -> int:
        """The number of parameters, including all experts."""
        return self._with_biases(d_model, self.experts)

    def active_parameters(self, d_model: int) -> int:
        """The parameters that one token uses."""
        return self._with_biases(d_model, self.active)

    def streamed(self, d_model: int) -> int:
        """The numbers per token that these products read and write."""
        used = (self.active if self.experts else 1) + bool(self.shared)
        widths = self.width * (self.active if self.experts else 1) + self.shared
        return used * 2 * d_model + self.matrices * widths

    def _with_biases(self, d_model: int, experts: int) -> int:
        one = ((self.matrices - 1) * self.width + d_model) * self.bias
        found = self.weights(d_model, experts) + one * (experts if self.experts else 1)
        return found + self.experts * self.router_bias


@dataclass(frozen=True)
class Layer:
    """One layer: its attention, its feed-forward part, its reach and its norms.

    `cross` adds cross-attention to the encoder's output, of the same sizes; `encoder` layers run once, over
    the source. `norm_numbers`, if given, is the number of parameters of norms that don't have the model's
    width.

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
        """Its reach as text: the reach of attention, a recurrent state, both, or none.

        >>> Layer(Attention(12, 12, 64), FeedForward(3072)).attends
        'full'
        """
        parts = [repr(self.reach)] if self.attention.attends else []
        return " and ".join(parts + ["state"] * bool(self.attention.state)) or "none"

    def norm_parameters(self, d_model: int, each: int) -> int:
        """The parameters of its norms, with `each` parameters per number of the width."""
        return self.norms * d_model * each if self.norm_numbers is None else self.norm_numbers

    @property
    def attentions(self) -> int:
        """The number of attentions in the layer."""
        return 2 if self.cross else 1


@dataclass(frozen=True)
class Extra:
    """A part of a model outside its layers: a pooler, a table of relative positions.

    `weights` are the numbers in matrices that every token is multiplied with, or with `once` only one token.
    With `with_head` they are applied only at positions with logits, like the head.
    """

    name: str
    parameters: int
    weights: int = 0
    once: bool = False
    with_head: bool = False


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that its cost depends on.

    `context` is its training length, None if it has no limit. `positions` and `types` are numbers of learned
    embedding rows. `norm_parameters` is 1 for norms with a scale, 2 with scale and shift. With `tied`, head
    and embedding share their matrix. `embedding_dim` is the width of an embedding that is projected to
    `d_model`.

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
        """A model of equal layers, whose reach repeats a pattern.

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
        """The most query heads of a layer; 0 if no layer attends."""
        return max(layer.attention.heads * layer.attention.attends for layer in self.layers)

    @property
    def decodes(self) -> bool:
        """Whether it decodes token by token, and so has a cache."""
        return any(layer.causal for layer in self.layers)

    @property
    def has_encoder(self) -> bool:
        """Whether it has an encoder, which reads a source first."""
        return any(layer.cross for layer in self.layers)

    @property
    def kinds(self) -> dict[str, int]:
        """The number of layers per reach.

        >>> from regard.cost import preset
        >>> preset("llama-4-maverick").kinds
        {'chunk:8192': 36, 'full': 12}
        """
        found: dict[str, int] = {}
        for layer in self.layers:
            found[layer.attends] = found.get(layer.attends, 0) + 1
        return found
