"""Watches models whose layers compute attention themselves, without transformers' registry.

While an attention module runs, two torch calls are intercepted: the fused `scaled_dot_product_attention`,
whose queries, keys and values make a lazy map, and softmax over scores, which are stored. The model's own
computation is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError
from regard.masks import Causal, Dense, Mask
from regard.models.banded import Band, is_banded
from regard.models.call import AttentionCall, given_mask
from regard.models.hook import Watcher
from regard.stats import NormWeighted, Statistic, ValueWeighted

__all__ = ["observed_outside"]

# Class names of attention modules.
ATTENDS = re.compile(r"atten(?!tionmask)|attn", re.IGNORECASE)
# Models mask a pair with a score of -inf, the lowest finite number, or, in the oldest ones, -10,000.
FORBIDDEN = -9e3
# The weight of a score so far below the largest of its row is 0 in any precision.
NOTHING = 200.0
# How near a number is to itself after a conversion to bfloat16.
CLOSE = 2**-7
# The most scores that a recording stores for one layer: 2 GiB in float32.
CELLS = 1 << 29

Function = torch.nn.functional
SOFTMAX = (torch.softmax, Tensor.softmax, Function.softmax)


@contextmanager
def observed_outside(model: Any, watcher: Watcher, stats: Sequence[Statistic] = ()) -> Iterator[None]:
    """Within the block, pass every attention that the model's own modules compute to the watcher.

    `stats` are its statistics. Scores come without values, so statistics that read values are refused.
    """
    from transformers import PreTrainedModel

    running = _Running(model, watcher, [s.name for s in stats if isinstance(s, ValueWeighted | NormWeighted)])
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        for module in model.modules():
            if module is model or isinstance(module, PreTrainedModel):
                stack.callback(module.register_forward_pre_hook(running.read, with_kwargs=True).remove)
            if ATTENDS.search(type(module).__name__):
                stack.callback(module.register_forward_pre_hook(running.enter, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(running.leave, always_call=True).remove)
        # Turn the fused encoder layer off: it is a single call, so attention within it can't be intercepted.
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        stack.enter_context(_Observing(running))
        yield


class _Running:
    """The attention modules that are running, and their intercepted calls."""

    def __init__(self, model: Any, watcher: Watcher, of_values: Sequence[str]) -> None:
        self.model, self.watcher, self.of_values = model, watcher, of_values
        self.modules: list[torch.nn.Module] = []
        self.looked: list[bool] = []
        """For each running module, whether it has attended in the current call."""
        self.bands: list[Band | None] = []
        """What those that attend in a window have attended to so far."""
        self.batch: int | None = None
        self.length: int | None = None
        """How many texts the model or a part of it was given, and how many tokens of each."""
        self.real: Tensor | None = None
        """Which of them are text, as far as it was told: (batch, n)."""

    def read(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        names = list(signature(module.forward).parameters)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        ids, mask = given.get("input_ids", args[0] if args else None), given.get("attention_mask")
        self.batch = self.length = None
        if isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point():
            self.batch, self.length = ids.shape
        translates = "decoder_input_ids" in names
        # A decoder is called after its encoder, whose padding is not its own.
        if module is self.model or translates or given.get("encoder_hidden_states") is not None:
            self.real = None
        if isinstance(mask, Tensor) and mask.ndim == 2 and not translates:
            self.real = mask.bool()

    def enter(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self.modules.append(module)
        self.looked.append(False)
        self.bands.append(Band.of(module, kwargs) if is_banded(module) else None)

    def leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self.modules.pop()
        self.looked.pop()
        self.bands.pop()

    def fused(self, call: AttentionCall, mask: Tensor | None, is_causal: bool) -> None:
        """Observe a call of the fused function."""
        q, k = call.q, call.k
        one_head = q.ndim == 3
        if one_head:
            # One head, without a dimension of its own.
            call = replace(call, q=q[:, None], k=k[:, None], v=call.v[:, None])
            q, k = call.q, call.k
        if q.ndim != 4 or q.shape[1] % k.shape[1]:
            raise self._in_pieces(f"attends with shapes {tuple(q.shape)} and {tuple(k.shape)}")
        if is_causal:
            # PyTorch's causal mask is aligned at the first key, regard's at the last.
            allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            square = q.shape[2] == k.shape[2]
            call = replace(call, mask=Causal()) if square else given_mask(call, allowed[None, None])
        elif mask is not None:
            mask = mask[:, None] if one_head and mask.ndim == 3 else mask[(None,) * (4 - mask.ndim)]
            mask, rows = (
                mask.expand(-1, -1, q.shape[2], k.shape[2]),
                self._text(q.shape[0], q.shape[2], k.shape[2]),
            )
            if rows is not None:
                forbidden = False if mask.dtype == torch.bool else -torch.inf
                mask = mask.expand(len(rows), -1, -1, -1).masked_fill(~rows, forbidden)
            call = given_mask(call, mask)
        self._look(call)

    def scored(self, scores: Tensor) -> None:
        """Observe a softmax over scores."""
        module = self.modules[-1]
        four = self._four(scores, module) if self.bands[-1] is None else self._joined(scores, self.bands[-1])
        if four is None:
            return
        if four.numel() > CELLS:
            raise ModelError(
                f"{type(module).__name__} makes {four.numel():,} scores at once, and where a model computes "
                f"attention itself they are kept; at most {CELLS:,} can be. Watch a shorter text."
            )
        if self.of_values:
            raise ModelError(
                f"{self.of_values[0]} reads values, and of {type(module).__name__}, which computes attention "
                "itself, only scores are seen. Ask for statistics of weights."
            )
        four, sink = _without_sink(four, getattr(module, "sinks", None))
        allowed = (four > FORBIDDEN) | (four.amax(-1, keepdim=True) - four < NOTHING)
        batch, heads, q, k = four.shape
        rows = self._text(batch, q, k)
        if rows is not None:
            allowed = allowed & rows
        bias = four.detach().float().masked_fill(~allowed, 0.0)
        nothing = bias.new_zeros(batch, heads, max(q, k), 1)
        keys = nothing[:, :, :k]
        mask = _mask_of(allowed)
        self._look(AttentionCall(nothing[:, :, :q], keys, keys[..., :0], mask, 1.0, bias, sink=sink))

    def _joined(self, scores: Tensor, band: Band) -> Tensor | None:
        """Scores in a window as those of a map; None until all its rows are there."""
        if scores.ndim == 4:
            band.add_windows(scores)
            if band.has_global_rows:
                return None
        else:
            band.add_global_rows(scores.unflatten(0, (len(band.scores), -1)))
        return band.of_text(self.length)

    def _text(self, batch: int, q: int, k: int) -> Tensor | None:
        """Which queries are text, (batch, 1, q, 1): some models let those of padding attend."""
        if self.real is None or self.real.shape != (batch, k) or q > k or bool(self.real.all()):
            return None
        return self.real[:, None, k - q :, None]

    def _look(self, call: AttentionCall) -> None:
        if self.looked[-1]:
            raise self._in_pieces("attends several times in one call")
        self.looked[-1] = True
        self.watcher.attend(self.modules[-1], call)

    def _four(self, scores: Tensor, module: torch.nn.Module) -> Tensor | None:
        """Scores as (batch, heads, q, k); None if the softmax does not belong to attention."""
        heads = _heads(module) or _heads(self.model)
        if not scores.is_floating_point() or scores.ndim < 3:
            return None
        if scores.ndim == 3:
            folded = (-1, heads) if heads else (self.batch or 0, -1)
            known = max(folded)
            return scores.unflatten(0, folded) if known and scores.shape[0] % known == 0 else None
        if scores.ndim > 4 or (heads is not None and scores.shape[1] != heads):
            raise self._in_pieces(f"makes scores of shape {tuple(scores.shape)}")
        return scores

    def _in_pieces(self, what: str) -> ModelError:
        return ModelError(
            f"{type(self.model).__name__} cannot be watched: {type(self.modules[-1]).__name__} {what}, so it "
            "attends in blocks, by an approximation or in several parts, and has no map of queries and keys "
            "to show."
        )


class _Observing(TorchFunctionMode):
    """Intercepts torch calls. PyTorch disables the mode while it handles a call, so nested calls pass
    through."""

    def __init__(self, running: _Running) -> None:
        super().__init__()
        self.running = running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.running.modules:
            return func(*args, **kwargs)
        if func is Function.multi_head_attention_forward:
            return self._multi_head(func, args, kwargs)
        out = func(*args, **kwargs)
        if func is Function.scaled_dot_product_attention:
            self._see_fused(*args, **kwargs)
        elif func in SOFTMAX:
            self._see_softmax(*args, **kwargs)
        return out

    def _see_fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> None:
        self.running.fused(AttentionCall(query, key, value, None, scale), attn_mask, is_causal)

    def _see_softmax(self, input: Tensor, dim: int | None = None, *args: Any, **kwargs: Any) -> None:
        if dim is not None and dim % input.ndim == input.ndim - 1:
            self.running.scored(input)

    def _multi_head(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Intercept the attention within one call of PyTorch's own multi-head function."""
        softmax, fused = Function.softmax, Function.scaled_dot_product_attention

        def seen_softmax(*given: Any, **options: Any) -> Tensor:
            self._see_softmax(*given, **options)
            return softmax(*given, **options)

        def seen_fused(*given: Any, **options: Any) -> Tensor:
            self._see_fused(*given, **options)
            return fused(*given, **options)

        with (
            patch.object(Function, "softmax", seen_softmax),
            patch.object(Function, "scaled_dot_product_attention", seen_fused),
        ):
            return func(*args, **kwargs)


def _without_sink(scores: Tensor, sink: Any) -> tuple[Tensor, Tensor | None]:
    """Scores without a last column that no key has, and the logits of that column, one for each head."""
    if not isinstance(sink, Tensor) or sink.numel() != scores.shape[1]:
        return scores, None
    sink = sink.detach().float().flatten()
    # Models subtract each row's largest number first; a row keeps its weights whatever is added to it.
    added = sink[:, None] - scores[..., -1].float()
    plain = bool((added.abs() <= CLOSE * sink.abs()[:, None]).all())
    if not plain and bool(scores.amax(-1).any()):
        return scores, None
    return scores[..., :-1].float() + added[..., None], sink


def _mask_of(allowed: Tensor) -> Mask | None:
    """The simplest mask that fits the masked scores: none, causal, or a bool matrix."""
    if bool(allowed.all()):
        return None
    q, k = allowed.shape[2:]
    if bool((allowed == allowed[:, :1]).all()):
        allowed = allowed[:, :1]
        if bool((allowed == torch.ones_like(allowed[0, 0]).tril(k - q)).all()):
            return Causal()
    return Dense(allowed)


def _heads(module: Any) -> int | None:
    """The number of heads of a module, from the attributes that modules and configs use."""
    for owner in (module, getattr(module, "config", None)):
        for name in ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "heads"):
            heads = getattr(owner, name, None)
            if isinstance(heads, int) and heads > 0:
                return heads
    return None
