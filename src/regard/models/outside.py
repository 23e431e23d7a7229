"""Watches models whose layers compute attention themselves, without transformers' registry.

While an attention module runs, two torch calls are intercepted: the fused `scaled_dot_product_attention`,
whose queries, keys and values make a lazy map, and softmax over scores, which are stored. The model's own
computation is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import ModelError
from regard.masks import Causal
from regard.models.blocked import Laid, Layout, check_cells, layout_of
from regard.models.call import AttentionCall, given_mask
from regard.models.hook import Watcher
from regard.models.scored import as_heads, call_of_scores
from regard.stats import NormWeighted, Statistic, ValueWeighted

__all__ = ["attends", "observed_outside"]

# Class names of attention modules.
ATTENDS = re.compile(r"atten(?!tionmask)|attn", re.IGNORECASE)
# Class names of modules whose weights are no map of queries and keys: of points in an image, of a few chosen
# queries, of layers, of a mask that is drawn.
WITHOUT_MAP = re.compile(
    r"Deformable|ProbSparse|MHAttentionMap|GatedAttention|AttentionResidual|Statistics|EfficientAdditive"
)
# Class names of modules in which a few queries of their own summarise all tokens.
POOLS = re.compile(r"Atten(tion|tive)Pool|PoolingHead|PoolingAttention")
# What modules and configs call their number of heads.
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "heads", "num_attn_heads")

Function = torch.nn.functional
SOFTMAX = (torch.softmax, Tensor.softmax, Function.softmax)


@contextmanager
def observed_outside(
    model: Any,
    watcher: Watcher,
    stats: Sequence[Statistic] = (),
    only: Sequence[torch.nn.Module] | None = None,
) -> Iterator[None]:
    """Within the block, pass every attention that the model's own modules compute to the watcher.

    `stats` are its statistics. Scores come without values, so statistics that read values are refused. With
    `only`, other modules are left alone, and attention of these that has no map is left out.
    """
    from transformers import PreTrainedModel

    of_values = [s.name for s in stats if isinstance(s, ValueWeighted | NormWeighted)]
    if only is not None and of_values:
        yield
        return
    running = _Running(model, watcher, of_values, only is not None)
    fast = torch.backends.mha.get_fastpath_enabled()
    chosen = None if only is None else {id(module) for module in only}
    with ExitStack() as stack:
        for module in model.modules():
            if module is model or isinstance(module, PreTrainedModel):
                stack.callback(module.register_forward_pre_hook(running.read, with_kwargs=True).remove)
            if (attends(module) or holds_heads(module)) if chosen is None else id(module) in chosen:
                stack.callback(module.register_forward_pre_hook(running.enter, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(running.leave, always_call=True).remove)
        # Turn the fused encoder layer off: it is a single call, so attention within it can't be intercepted.
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        stack.enter_context(_Observing(running))
        yield


def attends(module: torch.nn.Module) -> bool:
    """Whether a module's class is named after attention, of queries to keys."""
    name = type(module).__name__
    return ATTENDS.search(name) is not None and WITHOUT_MAP.search(name) is None


def holds_heads(module: torch.nn.Module) -> bool:
    """Whether a module holds a list of attention modules, which may be the heads of one attention."""
    lists = (part for part in module.children() if isinstance(part, torch.nn.ModuleList))
    return any(len(part) > 1 and all(map(attends, part)) for part in lists)


@dataclass
class _Module:
    """A module that is running, and what it has attended to so far."""

    module: torch.nn.Module
    layout: Layout | None
    reads: Any
    """Its first argument: heads that are modules of their own are given the same one."""
    seen: Tensor | None = None
    """The scores or queries of its attention, once it has attended."""
    heads: list[tuple[_Module, AttentionCall]] = field(default_factory=list[Any])
    """Calls with one head, which may be one head of several."""


class _Running:
    """The attention modules that are running, and their intercepted calls."""

    def __init__(self, model: Any, watcher: Watcher, of_values: Sequence[str], lenient: bool) -> None:
        self.model, self.watcher, self.of_values = model, watcher, of_values
        self.lenient = lenient
        """Whether attention without a map is left out instead of refused."""
        self.modules: list[_Module] = []
        self.owners = {id(part): module for module in model.modules() for part in module.children()}
        """The module that holds each module."""
        self.batch: int | None = None
        self.length: int | None = None
        """How many texts the model or a part of it was given, and how many tokens of each."""
        self.rows: int | None = None
        """How many texts, images or sounds it was given, if that is its first dimension."""
        self.real: Tensor | None = None
        """Which of them are text, as far as it was told: (batch, n)."""

    def read(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = _named(module, args, kwargs)
        ids, mask = given.get("input_ids", args[0] if args else None), given.get("attention_mask")
        self.batch = self.length = None
        if isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point():
            self.batch, self.length = ids.shape
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim > 1]
        self.rows = len(inputs[0]) if inputs else None
        translates = "decoder_input_ids" in signature(module.forward).parameters
        # A decoder is called after its encoder, whose padding is not its own.
        if module is self.model or translates or given.get("encoder_hidden_states") is not None:
            self.real = None
        if isinstance(mask, Tensor) and mask.ndim == 2 and not translates:
            self.real = mask.bool()

    def enter(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = _named(module, args, kwargs)
        layout = layout_of(module, self.owners.get(id(module)), given, self.length)
        self.modules.append(_Module(module, layout, next(iter(given.values()), None)))

    def leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        left = self.modules[-1]
        try:
            if left.heads and len(self.modules) > 1 and self._holds(self.modules[-2].module, module):
                self.modules[-2].heads += left.heads
            else:
                self._look_at_heads(left)
        finally:
            self.modules.pop()

    @property
    def attending(self) -> bool:
        """Whether an attention module is running, and not one that only holds some."""
        return bool(self.modules) and (attends(self.modules[-1].module) or self.lenient)

    def fused(self, call: AttentionCall, mask: Tensor | None, is_causal: bool) -> None:
        """Observe a call of the fused function."""
        q, k = call.q, call.k
        one_head = q.ndim == 3
        if one_head:
            # One head, without a dimension of its own.
            call = replace(call, q=q[:, None], k=k[:, None], v=call.v[:, None])
            q, k = call.q, call.k
        if q.ndim != 4 or q.shape[1] % k.shape[1]:
            self._refuse(f"attends with shapes {tuple(q.shape)} and {tuple(k.shape)}")
            return
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
        self._look(call, call.q)

    def scored(self, scores: Tensor) -> None:
        """Observe a softmax over scores."""
        running = self.modules[-1]
        if running.layout is None:
            four = self._four(scores, running.module)
            laid = [] if four is None else [Laid(four)]
        else:
            laid = running.layout.add(scores)
        for each in laid:
            check_cells(running.module, each.scores.numel())
            if self.of_values:
                raise ModelError(
                    f"{self.of_values[0]} reads values, and of {type(running.module).__name__}, which "
                    "computes attention itself, only scores are seen. Ask for statistics of weights."
                )
            batch, _, q, k = each.scores.shape
            rows = self._text(batch, q, k, each.extra)
            call = call_of_scores(each.scores, rows, getattr(running.module, "sinks", None))
            self._look(replace(call, role=each.role), scores)

    def _text(self, batch: int, q: int, k: int, extra: int = 0) -> Tensor | None:
        """Which queries are text, (batch, 1, q, 1): some models let those of padding attend."""
        real = self.real
        if real is None or real.shape != (batch, k - extra) or q > k or bool(real.all()):
            return None
        real = torch.nn.functional.pad(real, (0, extra), value=True)
        return real[:, None, k - q :, None]

    def _look(self, call: AttentionCall, seen: Tensor) -> None:
        """Pass a call to the watcher, or keep it until the other heads are there; `seen` is what it has of
        the model's."""
        running = self.modules[-1]
        call = replace(call, own=True, role=call.role or self._role(running.module))
        if running.layout is None:
            if call.q.shape[1] == 1:
                running.heads.append((running, call))
                return
            if running.seen is not None:
                # Some models weigh two things by the same scores.
                same = running.seen.shape == seen.shape and torch.equal(running.seen, seen)
                if not same:
                    self._refuse("attends several times in one call")
                return
            running.seen = seen
        self.watcher.attend(running.module, call)

    def _look_at_heads(self, left: _Module) -> None:
        """Pass the calls with one head, joined where they are heads of the same attention."""
        groups: list[list[tuple[_Module, AttentionCall]]] = []
        for one in left.heads:
            before = groups[-1][-1][0] if groups else None
            if before is not None and (before is one[0] or before.reads is one[0].reads):
                groups[-1].append(one)
            else:
                groups.append([one])
        for group in groups:
            calls = [call for _, call in group]
            joined = as_heads(calls) if len(calls) > 1 else calls[0]
            if joined is None:
                self._refuse("attends several times in one call")
                return
            self.watcher.attend(group[0][0].module if len(group) == 1 else left.module, joined)

    def _holds(self, module: torch.nn.Module, head: torch.nn.Module) -> bool:
        """Whether a module holds another one in a list."""
        held_by = self.owners.get(id(head))
        return isinstance(held_by, torch.nn.ModuleList) and self.owners.get(id(held_by)) is module

    def _role(self, module: torch.nn.Module) -> str | None:
        """The stack of a module, if its class tells and its name may not."""
        kinds = type(module).__name__, type(self.owners.get(id(module))).__name__
        return "pooling" if any(POOLS.search(kind) for kind in kinds) else None

    def _four(self, scores: Tensor, module: torch.nn.Module) -> Tensor | None:
        """Scores as (batch, heads, q, k); None if the softmax does not belong to attention."""
        heads = _heads(module) or _heads(self.model)
        if not scores.is_floating_point() or scores.ndim < 3 or scores.shape[-1] == 1 < scores.shape[-2]:
            # Many rows of one number each weigh something else: a softmax makes each of them 1.
            return None
        if scores.ndim == 3:
            if scores.shape[0] == (self.batch or (None if heads else self.rows)):
                return scores[:, None]
            folded = (-1, heads) if heads else (self.batch or 0, -1)
            known = max(folded)
            return scores.unflatten(0, folded) if known and scores.shape[0] % known == 0 else None
        if scores.ndim > 4 or (heads is not None and scores.shape[1] not in (heads, 1)):
            self._refuse(f"makes scores of shape {tuple(scores.shape)}")
            return None
        return scores

    def _refuse(self, what: str) -> None:
        """Raise ModelError, unless such attention is left out."""
        if self.lenient:
            return
        kind = type(self.modules[-1].module).__name__
        raise ModelError(
            f"{type(self.model).__name__} cannot be watched: {kind} {what}, so it attends "
            "in blocks, by an approximation or in several parts, and has no map of queries and keys to show."
        )


class _Observing(TorchFunctionMode):
    """Intercepts torch calls. PyTorch disables the mode while it handles a call, so nested calls pass
    through."""

    def __init__(self, running: _Running) -> None:
        super().__init__()
        self.running = running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.running.attending:
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


def _named(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name."""
    names = list(signature(module.forward).parameters)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _heads(module: Any) -> int | None:
    """The number of heads of a module, from the attributes that modules and configs use."""
    for owner in (module, getattr(module, "config", None)):
        for name in HEADS:
            heads = getattr(owner, name, None)
            if isinstance(heads, int) and heads > 0:
                return heads
    return None
