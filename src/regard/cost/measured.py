"""Measures the shape of a model of any family on the model that transformers builds for its config."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from regard.cost.anatomy import Part
from regard.cost.calls import Call
from regard.cost.counted import CountedAttention, CountedFeedForward
from regard.cost.probe import LENGTHS, STATES, WIDE, Probe
from regard.cost.reach import FULL, Reach
from regard.cost.shape import Extra, Layer, ModelShape
from regard.errors import NotCountedError

__all__ = ["measured_shape"]

# Config fields of sparse attention. A model with one is refused if its attention calls were not recorded.
LOCAL = (
    "sliding_window",
    "attention_window",
    "attention_type",
    "attention_types",
    "attn_layers",
    "local_attention",
    "window_size",
    "block_size",
    "num_buckets",
    "separate_cls",
)


class Growth(NamedTuple):
    """A count as a function of the number of tokens n: fixed + token · n + pair · n²."""

    fixed: int
    token: int
    pair: int

    @classmethod
    def of(cls, counts: list[int]) -> Growth:
        """Fit the counts at three consecutive lengths.

        >>> Growth.of([2 + 3 * n + 5 * n * n for n in LENGTHS])
        Growth(fixed=2, token=3, pair=5)
        """
        n = LENGTHS[0]
        pair = (counts[2] - 2 * counts[1] + counts[0]) // 2
        token = counts[1] - counts[0] - pair * (2 * n + 1)
        return cls(counts[0] - token * n - pair * n * n, token, pair)


def measured_shape(found: Probe, name: str) -> ModelShape:
    """Derive a model's shape from its modules, its cache and the matrix products of its passes."""
    reader = _Reader(found)
    layers = tuple(reader.layer(index) for index in range(len(found.anatomy.layers)))
    model: Any = found.model
    learned = reader.learned
    head, table = model.get_output_embeddings(), model.get_input_embeddings().weight
    # A head of the embedding's shape is part of `ModelShape`; any other is an extra.
    plain = head is not None and head.weight.shape == table.shape
    tied = head is not None and head.weight is table
    bias = plain and getattr(head, "bias", None) is not None
    of_head = sum(p.numel() for p in head.parameters()) if head is not None and not plain else 0
    outside = sum(count for part, count in learned.items() if part.layer is None)
    own = table.numel() + plain * (not tied) * table.numel() + bias * table.shape[0]
    return ModelShape(
        name,
        found.config.hidden_size,
        layers,
        table.shape[0],
        context=_context(found.config),
        tied=tied,
        head=plain,
        head_bias=bias,
        embedding_dim=table.shape[1],
        final_norms=0,
        extras=tuple(
            extra for extra in _extras(reader, outside - own, of_head) if extra.parameters or extra.weights
        ),
    )


def _extras(reader: _Reader, numbers: int, of_head: int) -> tuple[Extra, ...]:
    """The parts outside the layers, other than the embedding and a head of its shape."""
    beside, head = (reader.growth(Part(None, kind)) for kind in ("other", "head"))
    found = (
        Extra("beside the layers", numbers - of_head, beside.token // 2),
        Extra("beside the layers, once", 0, beside.fixed // 2, once=True),
        Extra("head", of_head, head.token // 2 if of_head else 0, with_head=True),
    )
    return tuple(extra for extra in found if extra.parameters or extra.weights)


class _Reader:
    """Reads the layers of a probe one by one."""

    def __init__(self, found: Probe) -> None:
        self.found, self.config = found, found.config
        self.kind = found.config.model_type
        self.learned: Counter[Part] = Counter()
        labels = found.anatomy.labels
        owners = {id(p): labels.get(m, Part(None, "other")) for m in self._counted() for p in _own(m)}
        for parameter in found.model.parameters():
            if id(parameter) in owners:
                self.learned[owners[id(parameter)]] += parameter.numel()
        self.causal = type(found.model).__name__.endswith(
            ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
        )

    def _counted(self) -> set[nn.Module]:
        """The modules to count: all, or for a multimodal model those that a pass over text visits."""
        if not self.found.partial:
            return set(self.found.model.modules())
        layers = {module for layer in self.found.anatomy.layers for module in layer.modules()}
        return layers | self.found.passes[LENGTHS[0]].products.visited

    def growth(self, part: Part, count: str = "flops") -> Growth:
        """The growth of one part's count with the length."""
        counts = [getattr(self.found.passes[n].products, count)[part] for n in LENGTHS]
        return Growth.of(counts)

    def layer(self, index: int) -> Layer:
        first = self.found.anatomy.alike[index]
        attention, reach, causal = self.attention(index, first)
        feed = self.feed_forward(index, first)
        if not (attention.attends or attention.cached or attention.state):
            # This module is called a mixer but doesn't mix tokens: it is a feed-forward part.
            feed = replace(
                feed,
                learned=feed.learned + attention.learned,
                dense=feed.dense + attention.matrices,
                moved=feed.moved + attention.moved,
            )
            attention = replace(attention, learned=0, matrices=0, moved=0)
        norms = self.learned[Part(index, "norms")]
        return Layer(attention, feed, reach, causal=causal, norm_numbers=norms)

    def attention(self, index: int, first: int) -> tuple[CountedAttention, Reach, bool]:
        part = Part(first, "attention")
        kept, states = self.kept(first)
        wide = states.pop(WIDE, 0)
        recurrent = sum(states.values()) > 0
        products = self.growth(part, "weighted" if recurrent else "flops")
        if products.fixed and not recurrent:
            raise NotCountedError(
                f"{self.kind} has products in layer {index} that grow neither with tokens nor with pairs of "
                "them; its attention is of a kind that is not counted."
            )
        calls = [call for call in self.found.passes[LENGTHS[-1]].calls if call.label == part]
        score, mix, (reach, causal) = self.pairs(calls, products.pair)
        sizes = calls[0] if calls else None
        heads = sizes.heads if sizes else self._heads() if score else 1
        made = CountedAttention(
            heads,
            sizes.kv_heads if sizes else heads,
            sizes.head_dim if sizes else self.config.hidden_size // heads if score else 1,
            learned=self.learned[Part(index, "attention")],
            matrices=products.token // 2,
            moved=self.growth(part, "moved").token,
            score=score,
            mix=mix,
            index=products.pair if calls else 0,
            kept=kept,
            fixed=sum(states.values()),
            wide=wide,
            token_flops=2 * self._readings(first) * states["recurrent_states"],
            decoding=self._on_latents(heads, kept) if calls else None,
        )
        return made, reach, causal

    def pairs(self, calls: list[Call], counted: int) -> tuple[int, int, tuple[Reach, bool]]:
        """FLOPs per pair for its score and its weighted value, and the reach."""
        if not calls:
            if counted:
                self._check_full()
            return counted // 2, counted // 2, (FULL, self.causal)
        if any(call.keys != call.queries for call in calls):
            raise NotCountedError(
                f"the queries of {self.kind} see more or fewer keys than there are tokens; "
                "such attention is not counted."
            )
        seen = {(call.reach, call.causal) for call in calls}
        if len(seen) > 1 or (None in {call.reach for call in calls} and self._masked()):
            raise NotCountedError(
                f"which keys the queries of {self.kind} see is not known; it is not counted."
            )
        reach, causal = seen.pop()
        reach, causal = (FULL, self.causal) if reach is None else (reach, causal)
        chosen = getattr(self.config, "index_topk", None)
        if counted and chosen and reach == FULL:
            reach = Reach("sparse", chosen)
        score = sum(2 * call.heads * call.head_dim for call in calls)
        return score, sum(2 * call.heads * call.value_dim for call in calls), (reach, causal)

    def kept(self, index: int) -> tuple[int, dict[str, int]]:
        """A layer's part of the cache: numbers per token, and numbers of its state."""
        caches = [self.found.passes[n].kept for n in LENGTHS]
        if None in caches:
            if self.causal:
                raise NotCountedError(f"the cache of {self.kind} is of a kind that is not counted.")
            return 0, dict.fromkeys(STATES, 0)
        rows = [cache[index] if index < len(cache) else {} for cache in caches if cache is not None]
        tokens = Growth.of([row.get("tokens", 0) for row in rows])
        states = {name: rows[-1].get(name, 0) for name in (*STATES, WIDE)}
        still = all(row.get(name, 0) == count for row in rows for name, count in states.items())
        if tokens.fixed or tokens.pair or not still:
            raise NotCountedError(f"the cache of {self.kind} does not grow by the token; it is not counted.")
        return tokens.token, states

    def feed_forward(self, index: int, first: int) -> CountedFeedForward:
        dense, sparse = (self.growth(Part(first, kind)) for kind in ("feed_forward", "experts"))
        experts, one, matrices = self._experts(first)
        active, odd = divmod(sparse.token, 2 * matrices) if matrices else (0, sparse.token)
        if odd or dense.pair or (matrices and not 1 <= active <= experts):
            raise NotCountedError(
                f"how many of the experts of {self.kind} serve a token is not known; it is not counted."
            )
        return CountedFeedForward(
            1,
            experts=experts,
            active=active,
            learned=self.learned[Part(index, "feed_forward")] + self.learned[Part(index, "experts")],
            dense=dense.token // 2,
            expert=matrices,
            idle=one * (experts - active),
            moved=sum(self.growth(Part(first, kind), "moved").token for kind in ("feed_forward", "experts")),
        )

    def _experts(self, index: int) -> tuple[int, int, int]:
        """The number of experts of a layer, the parameters of one, and the numbers in its matrices."""
        labels = self.found.anatomy.labels
        modules = [
            m for m in self.found.anatomy.layers[index].modules() if labels.get(m) == Part(index, "experts")
        ]
        parameters = [p for m in modules for p in _own(m)]
        lists = [len(m) for m in modules if isinstance(m, nn.ModuleList)]
        count = lists[0] if lists else max((p.shape[0] for p in parameters if p.dim() == 3), default=0)
        if not count:
            return 0, 0, 0
        matrices = sum(p.numel() for p in parameters if p.dim() == (2 if lists else 3))
        return count, sum(p.numel() for p in parameters) // count, matrices // count

    def _readings(self, index: int) -> int:
        """The number of passes over a recurrent state per token: one to update it, one to read it.

        The delta rule also reads the state before the update, to subtract the current value.
        """
        names = {type(module).__name__.lower() for module in self.found.anatomy.layers[index].modules()}
        return 3 if any("delta" in name or "kda" in name for name in names) else 2

    def _on_latents(self, heads: int, kept: int) -> tuple[int, int] | None:
        """FLOPs per pair on latent vectors, if the cache holds these."""
        rank, rotary = (getattr(self.config, name, None) for name in ("kv_lora_rank", "qk_rope_head_dim"))
        size = (rank or 0) + (rotary or 0)
        # Keys and values of all heads would be many times as long; an index at most doubles the size.
        if not rank or rotary is None or not size <= kept < 2 * size:
            return None
        return 2 * heads * size, 2 * heads * rank

    def _heads(self) -> int:
        for name in ("num_attention_heads", "n_head", "num_heads"):
            if isinstance(getattr(self.config, name, None), int):
                return getattr(self.config, name)
        raise NotCountedError(f"the config of {self.kind} lacks num_attention_heads (or n_head, num_heads).")

    def _masked(self) -> bool:
        """Whether masks that the model made were recorded."""
        return any(call.reach is not None for call in self.found.passes[LENGTHS[-1]].calls)

    def _check_full(self) -> None:
        local = [name for name in LOCAL if getattr(self.config, name, None) not in (None, "absolute")]
        if local:
            raise NotCountedError(
                f"{self.kind} computes its attention by itself, and {', '.join(local)} says that not every "
                "key is seen; it is not counted."
            )


def _own(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))


def _context(config: Any) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        found = getattr(config, name, None)
        if isinstance(found, int) and found > 0:
            return found
    return None
