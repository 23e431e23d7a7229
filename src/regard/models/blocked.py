"""Attention that models compute in blocks, in windows or in several streams, laid out as maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError
from regard.models.banded import Band, is_banded

__all__ = ["Laid", "Layout", "check_cells", "layout_of"]

# The most scores that a recording stores for one layer: 2 GiB in float32.
CELLS = 1 << 29


@dataclass(frozen=True)
class Laid:
    """The scores of one map.

    `role` is its stack, if it is not the module's. `extra` is how many of its last keys are no tokens; a
    square map has rows for them too.
    """

    scores: Float[Tensor, "batch heads q k"]
    role: str | None = None
    extra: int = 0


class Layout(Protocol):
    """Collects the scores of one call of a module, softmax by softmax."""

    def add(self, scores: Tensor) -> list[Laid]:
        """The maps that these scores complete."""
        ...


def layout_of(module: Any, owner: Any, given: dict[str, Any], length: int | None) -> Layout | None:
    """The layout of a module's scores; None if they are (batch, heads, q, k) already.

    `owner` is the module that holds it, `given` are its arguments by name, and `length` is how many tokens
    the model reads.
    """
    for found, make in LAYOUTS:
        if found(module):
            return make(module, owner, given, length)
    return None


def check_cells(module: Any, count: int) -> None:
    """Raise ModelError if a module makes more scores than are kept."""
    if count > CELLS:
        raise ModelError(
            f"{type(module).__name__} makes {count:,} scores at once, and where a model computes "
            f"attention itself they are kept; at most {CELLS:,} can be. Watch a shorter text."
        )


class _InWindows:
    """Longformer and LED: see `banded`."""

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.band, self.length = Band.of(module, given), length

    def add(self, scores: Tensor) -> list[Laid]:
        if scores.ndim == 4:
            self.band.add_windows(scores)
            if self.band.has_global_rows:
                return []
        else:
            self.band.add_global_rows(scores.unflatten(0, (len(self.band.scores), -1)))
        return [Laid(self.band.of_text(self.length))]


class _BesideNeighbours:
    """LongT5's encoder: each block of queries sees its block, those on both sides, and summaries of the text.

    The summaries follow the tokens, as keys; their rows see nothing.
    """

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.module, self.tokens = module, given["hidden_states"].shape[1]

    def add(self, scores: Float[Tensor, "batch blocks heads size some"]) -> list[Laid]:
        batch, blocks, heads, size, some = scores.shape
        n, extra = self.tokens, some - 3 * size
        check_cells(self.module, batch * heads * (n + extra) ** 2)
        # The keys begin with a block of nothing, which is the first block's neighbour.
        wide = scores.new_full((batch, heads, blocks * size, (blocks + 2) * size), -torch.inf)
        for block in range(blocks):
            rows, keys = (slice(block * size, (block + many) * size) for many in (1, 3))
            wide[:, :, rows, keys] = scores[:, block, :, :, : 3 * size]
        summaries = scores[..., 3 * size :].transpose(1, 2).flatten(2, 3)
        laid = scores.new_full((batch, heads, n + extra, n + extra), -torch.inf)
        laid[:, :, :n, :n] = wide[:, :, :n, size : size + n]
        laid[:, :, :n, n:] = summaries[:, :, :n]
        return [Laid(laid, extra=extra)]


class _BesideGlobals:
    """PEGASUS-X's encoder: tokens see their own block and the global tokens, which see all.

    The global tokens follow the text. Every second layer shifts its blocks by half of one.
    """

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.module = module
        self.shift = module.block_size // 2 if owner.stagger_blocks_this_layer else 0
        padded = given["token_hidden_states"].shape[1] - 2 * self.shift
        # The model appends padding to fill its last block.
        self.tokens = length if length is not None and 0 <= padded - length < module.block_size else padded
        self.of_globals: Tensor | None = None

    def add(self, scores: Tensor) -> list[Laid]:
        if self.of_globals is None:
            self.of_globals = scores
            return []
        batch, heads, blocks, size, some = scores.shape
        n, extra, start = self.tokens, some - size, self.shift
        check_cells(self.module, batch * heads * (n + extra) ** 2)
        wide = scores.new_full((batch, heads, blocks * size, blocks * size), -torch.inf)
        for block in range(blocks):
            own = slice(block * size, (block + 1) * size)
            wide[:, :, own, own] = scores[:, :, block, :, extra:]
        laid = scores.new_full((batch, heads, n + extra, n + extra), -torch.inf)
        text = slice(start, start + n)
        laid[:, :, :n, :n] = wide[:, :, text, text]
        laid[:, :, :n, n:] = scores[..., :extra].flatten(2, 3)[:, :, text]
        laid[:, :, n:, :n] = self.of_globals[..., extra:][..., text]
        laid[:, :, n:, n:] = self.of_globals[..., :extra]
        return [Laid(laid, extra=extra)]


class _InUnits:
    """Hiera: every window of patches attends to itself; patch p of window w is token p · windows + w."""

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.module = module

    def add(self, scores: Float[Tensor, "batch heads windows q k"]) -> list[Laid]:
        batch, heads, windows, q, k = scores.shape
        check_cells(self.module, batch * heads * q * k * windows**2)
        laid = scores.new_full((batch, heads, q, windows, k, windows), -torch.inf)
        for window in range(windows):
            laid[:, :, :, window, :, window] = scores[:, :, window]
        return [Laid(laid.flatten(4).flatten(2, 3))]


class _InStreams:
    """ProphetNet's decoder: the text, then one stream for each token that it predicts ahead.

    A query of a stream sees the text's keys and, behind them, those of its stream. In cross-attention, the
    queries of all streams follow those of the text.
    """

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        streams = getattr(owner, "self_attn", None)
        self.streams = 1 if streams is module else 1 + getattr(streams, "ngram", 0)

    def add(self, scores: Tensor) -> list[Laid]:
        text, *others = scores.chunk(self.streams, 2) if scores.ndim == 4 else scores.unbind(1)
        own = [Laid(text)] if scores.ndim == 4 else [Laid(text, "predicting")]
        return own + [Laid(each, "predicting") for each in others]


def _has(*names: str) -> Callable[[Any], bool]:
    """Whether a module has all of these attributes."""
    return lambda module: all(hasattr(module, name) for name in names)


class _InTwoStreams:
    """XLNet: the text, and while it predicts, a stream that doesn't see the token that it predicts."""

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.streams = 0

    def add(self, scores: Float[Tensor, "batch heads q k"]) -> list[Laid]:
        self.streams += 1
        return [Laid(scores, "predicting" if self.streams > 1 else None)]


class _BothWays:
    """Grounding DINO's fusion: the image's tokens look at the text's, and the text's at the image's."""

    def __init__(self, module: Any, owner: Any, given: dict[str, Any], length: int | None) -> None:
        self.heads = module.num_heads

    def add(self, scores: Float[Tensor, "batch_heads q k"]) -> list[Laid]:
        return [Laid(scores.unflatten(0, (-1, self.heads)), "cross")]


# How to recognise a module, and its layout.
LAYOUTS: tuple[tuple[Callable[[Any], bool], Callable[..., Layout]], ...] = (
    (is_banded, _InWindows),
    (_has("local_radius", "block_len"), _BesideNeighbours),
    (_has("compute_global_attention_representations", "block_size"), _BesideGlobals),
    (_has("use_mask_unit_attn", "query_stride"), _InUnits),
    (_has("num_attn_heads", "query_proj", "out_proj"), _InStreams),
    (_has("values_vision_proj", "values_text_proj", "num_heads"), _BothWays),
    (_has("rel_attn_core", "r_s_bias"), _InTwoStreams),
)
