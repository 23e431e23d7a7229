"""regard's attention in transformers' registry."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.engine import attention
from regard.engine.transformed import is_traced
from regard.errors import ModelError
from regard.maps import AttentionMap
from regard.models.call import AttentionCall, call_of
from regard.models.plan import plan_mask

__all__ = ["NAME", "Watcher", "attend", "register", "was", "watchers"]

NAME = "regard"


class Watcher(Protocol):
    """The interface of objects that observe the attention calls of modules."""

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, AttentionMap | None]:
        """Observe a call; returns its output."""
        ...


UNCOMPILED = (
    "a model on regard's attention is recorded by Python at each attention call; while it is watched, "
    "compile it without fullgraph=True, or call the model that was compiled."
)
UNEXPORTED = (
    "a model on regard's attention is recorded by Python at each attention call, so it cannot be exported or "
    "traced, nor run on fake tensors, while it is watched. Export it before or after."
)
# The watcher of each module, by the module's id, because subclasses of Module need not be hashable.
watchers: dict[int, Watcher] = {}
# The attention that a config asked for before regard's, by the config's id.
was: dict[int, str | None] = {}


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Tensor, AttentionMap | None]:
    """The function that transformers calls: returns the output as (batch, length, heads, dim), and the map if
    the module is watched."""
    if is_traced(query):
        raise ModelError(UNEXPORTED)
    if kwargs.get("is_causal") is None and was.get(id(getattr(module, "config", None))) == "eager":
        # Without a mask, transformers' fused functions are causal if the module is; eager attention never is.
        kwargs["is_causal"] = False
    call = call_of(module, query, key, value, attention_mask, **kwargs)
    watcher = watchers.get(id(module))
    if watcher is None:
        out, seen = attention(call.q, call.k, call.v, **call.options), None
    else:
        out, seen = watcher.attend(module, call)
    return out.transpose(1, 2).contiguous(), seen


@cache
def register() -> None:
    """Register regard's attention and its mask builder; without the second, transformers would drop all
    masks."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    # Not as a decorator: that would import the compiler, which reading a recording doesn't need.
    AttentionInterface.register(NAME, torch.compiler.disable(attend, reason=UNCOMPILED))
    AttentionMaskInterface.register(NAME, plan_mask)
