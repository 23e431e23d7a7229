"""FLOPs and bytes of a prefill and of a decoding step."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.dtypes import bytes_of
from regard.cost.parameters import parameters
from regard.cost.reach import FULL
from regard.cost.shape import Layer, ModelShape
from regard.errors import RegardError

__all__ = [
    "Scores",
    "Work",
    "cache_bytes",
    "decode",
    "kept_bytes",
    "layer_cache",
    "layer_wide",
    "prefill",
    "scores",
    "weight_bytes",
]

FLOPS: tuple[str, ...] = ("projections", "scores", "mix", "index", "state", "feed_forward", "head", "other")


@dataclass(frozen=True)
class Work:
    """The work of a pass by part: FLOPs of matrix products, bytes to and from memory.

    >>> from regard.cost import preset
    >>> work = decode(preset("llama-7b"), 2048)
    >>> work.flops == sum(work.flops_by_part.values())
    True
    """

    flops_by_part: dict[str, int]
    bytes_by_part: dict[str, int]

    @property
    def flops(self) -> int:
        """The total FLOPs."""
        return sum(self.flops_by_part.values())

    @property
    def bytes(self) -> int:
        """The total bytes."""
        return sum(self.bytes_by_part.values())

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Scores:
    """The full score matrix of one head: its entries, its bytes, and the FLOPs of Q·Kᵀ."""

    entries: int
    bytes: int
    flops: int


def scores(context: int, *, head_dim: int = 128, dtype: str = "float32") -> Scores:
    """The cost of one head's full score matrix, which fused kernels never store.

    >>> scores(1000, dtype="float16")
    Scores(entries=1000000, bytes=2000000, flops=256000000)
    """
    entries = _positive("context", context) ** 2
    return Scores(entries, bytes_of(entries, dtype), 2 * entries * head_dim)


def weight_bytes(shape: ModelShape, dtype: str = "bfloat16") -> int:
    """The bytes of all parameters.

    >>> from regard.cost import preset
    >>> weight_bytes(preset("gpt2"), "float32")
    497759232
    """
    return bytes_of(parameters(shape).total, dtype)


def cache_bytes(shape: ModelShape, context: int, *, dtype: str = "bfloat16", batch: int = 1) -> int:
    """The bytes of the key–value cache; 0 for a model that doesn't decode.

    >>> from regard.cost import preset
    >>> cache_bytes(preset("llama-7b"), 2048)
    1073741824
    """
    _check(context, batch)
    numbers = sum(layer_cache(layer, context) for layer in shape.layers)
    return kept_bytes(batch * numbers, batch * sum(map(layer_wide, shape.layers)), dtype)


def kept_bytes(numbers: int, wide: int, dtype: str) -> int:
    """The bytes of cached numbers, of which `wide` are in float32.

    >>> kept_bytes(10, 4, "bfloat16"), kept_bytes(10, 4, "float32")
    (28, 40)
    """
    return bytes_of(numbers - wide, dtype) + bytes_of(wide, "float32")


def layer_wide(layer: Layer) -> int:
    """The numbers in one layer's cache that are always in float32."""
    return layer.attention.wide_state if layer.causal and not layer.encoder else 0


def layer_cache(layer: Layer, context: int) -> int:
    """The numbers in one layer's cache for a context."""
    if layer.encoder or not layer.causal:
        return 0
    attention = layer.attention
    return attention.cached * (layer.reach.kept(context) + layer.cross * context) + attention.state


def prefill(
    shape: ModelShape,
    context: int,
    *,
    target: int | None = None,
    batch: int = 1,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
    logits: str = "last",
    dense: bool = False,
) -> Work:
    """The work of a prefill of a context.

    An encoder–decoder reads `context` tokens and writes `target` tokens, by default as many. `logits="all"`
    computes logits at every position, as in training; a model that doesn't decode always does. `dense` counts
    all pairs of a query and a key, allowed or not, as PyTorch's counter does.

    >>> from regard.cost import preset
    >>> llama = preset("llama-7b")
    >>> allowed, every = prefill(llama, 2048), prefill(llama, 2048, dense=True)
    >>> allowed.flops_by_part["scores"] / every.flops_by_part["scores"]
    0.500244140625
    """
    if logits not in ("last", "all"):
        raise RegardError(f"logits is {logits!r}; wanted 'last' or 'all'.")
    _check(context, batch)
    written = _positive("target", target) if target is not None and shape.has_encoder else context
    total = _Tally(shape, batch, dtype, cache_dtype)
    for layer in shape.layers:
        length = context if layer.encoder or not shape.has_encoder else written
        pairs = length * length if dense else layer.reach.pairs(length, length, layer.causal)
        every = length * length if dense else FULL.pairs(length, length, layer.causal)
        total.attend(layer, length, pairs, every, kept=layer_cache(layer, context))
        if layer.cross:
            total.cross(layer, length, context, context)
        total.feed(layer, length)
    everywhere = logits == "all" or not shape.decodes
    read = context + written if shape.has_encoder else context
    return total.finish(read, tokens=written, logits=written if everywhere else 1)


def decode(
    shape: ModelShape,
    context: int,
    *,
    batch: int = 1,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
) -> Work:
    """The work of decoding one token, the last of `context`, with all earlier ones in the cache.

    >>> from regard.cost import preset
    >>> decode(preset("llama-7b"), 2048).bytes_by_part["cache"] > 2048 * 2 * 2 * 32 * 4096
    True
    """
    _check(context, batch)
    if not shape.decodes:
        raise RegardError(f"{shape.name} is an encoder: it writes no tokens. Ask for its prefill.")
    total = _Tally(shape, batch, dtype, cache_dtype, decoding=True)
    for layer in shape.layers:
        if layer.encoder:
            continue
        pairs = layer.reach.pairs(1, context, layer.causal)
        # The whole state is read and written.
        kept = layer.attention.cached * (pairs + 1) + 2 * layer.attention.state
        total.attend(layer, 1, pairs, FULL.pairs(1, context, layer.causal), kept=kept)
        if layer.cross:
            total.cross(layer, 1, 0, context)
        total.feed(layer, 1)
    return total.finish(1, tokens=1, logits=1)


class _Tally:
    """Adds up a pass layer by layer."""

    def __init__(
        self, shape: ModelShape, batch: int, dtype: str, cache_dtype: str | None, decoding: bool = False
    ) -> None:
        self.shape, self.batch, self.decoding = shape, batch, decoding
        self.dtypes = {"weights": dtype, "activations": dtype, "cache": cache_dtype or dtype}
        self.flops: dict[str, int] = dict.fromkeys(FLOPS, 0)
        self.numbers: dict[str, int] = dict.fromkeys(self.dtypes, 0)
        self.wide = 0

    def attend(self, layer: Layer, length: int, pairs: int, every: int, kept: int) -> None:
        """Add self-attention over `pairs`; an index that selects keys scores `every` pair."""
        d, attention = self.shape.d_model, layer.attention
        self._pairs(layer, pairs)
        self.flops["index"] += attention.index_flops * every * self.batch
        self.flops["state"] += attention.state_flops * length * self.batch
        self.flops["projections"] += 2 * sum(attention.weights(d).values()) * length * self.batch
        self.numbers["weights"] += attention.parameters(d)
        self.numbers["activations"] += attention.streamed(d) * length * self.batch
        self.numbers["cache"] += kept * self.batch
        # A state is written in a prefill, and read and written in decoding.
        self.wide += layer_wide(layer) * (2 if self.decoding else 1) * self.batch

    def cross(self, layer: Layer, length: int, new: int, source: int) -> None:
        """Add cross-attention from the target to the source; `new` source keys are projected."""
        d, attention = self.shape.d_model, layer.attention
        ours = sum(attention.weights(d).values()) - attention.source_weights(d)
        self._pairs(layer, length * source)
        self.flops["projections"] += 2 * (ours * length + attention.source_weights(d) * new) * self.batch
        self.numbers["weights"] += attention.parameters(d) if new else ours
        self.numbers["activations"] += attention.streamed(d) * length * self.batch
        # In a prefill, writing the keys is counted with the layer's own; here they are read again.
        self.numbers["cache"] += (0 if new else source * attention.cached) * self.batch

    def feed(self, layer: Layer, length: int) -> None:
        d, ffn, tokens = self.shape.d_model, layer.ffn, length * self.batch
        self.flops["feed_forward"] += 2 * ffn.weights(d, ffn.active) * tokens
        # Tokens may choose different experts: count the most that can be read.
        touched = min(ffn.experts, ffn.active * tokens)
        self.numbers["weights"] += ffn.parameters(d) if touched == ffn.experts else ffn.weights(d, touched)
        self.numbers["weights"] += layer.norm_parameters(d, self.shape.norm_parameters)
        self.numbers["activations"] += ffn.streamed(d) * tokens

    def finish(self, read: int, tokens: int, logits: int) -> Work:
        shape, batch = self.shape, self.batch
        self.numbers["activations"] += shape.embedded * read * batch
        if shape.head:
            weights = shape.embedded * shape.vocab
            self.flops["head"] += 2 * weights * logits * batch
            self.numbers["weights"] += weights + shape.vocab * shape.head_bias
            self.numbers["activations"] += (shape.embedded + shape.vocab) * logits * batch
        for extra in shape.extras:
            times = 1 if extra.once else logits if extra.with_head else tokens
            self.flops["other"] += 2 * extra.weights * times * batch
            self.numbers["weights"] += extra.parameters
        moved = {part: bytes_of(n, self.dtypes[part]) for part, n in self.numbers.items()}
        moved["cache"] = kept_bytes(self.numbers["cache"], self.wide, self.dtypes["cache"])
        return Work(self.flops, moved)

    def _pairs(self, layer: Layer, pairs: int) -> None:
        score, mix = layer.attention.pair_flops(self.decoding)
        self.flops["scores"] += score * pairs * self.batch
        self.flops["mix"] += mix * pairs * self.batch


def _check(context: int, batch: int) -> None:
    _positive("context", context)
    _positive("batch", batch)


def _positive(name: str, given: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise RegardError(f"{name} is {given!r}; wanted a whole number, 1 or more.")
    return given
