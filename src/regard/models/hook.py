"""regard's attention in transformers' registry."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.engine import attention
from regard.maps import AttentionMap
from regard.models.call import AttentionCall, call_of
from regard.models.plan import plan_mask

__all__ = ["NAME", "Watcher", "attend", "register", "watchers"]

NAME = "regard"


class Watcher(Protocol):
    """The interface of objects that observe the attention calls of some modules."""

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, AttentionMap | None]:
        """Compute a call's output, and look at it."""
        ...


UNCOMPILED = (
    "a model on regard's attention is recorded by Python at each attention call; while it is watched, "
    "compile it without fullgraph=True, or call the model that was compiled."
)
# Which watcher looks at a module, by the module's id: modules hash by id, but need not stay hashable.
watchers: dict[int, Watcher] = {}


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Tensor, AttentionMap | None]:
    """What transformers calls: the output as (batch, length, heads, dim), and the map if it is watched."""
    call = call_of(module, query, key, value, attention_mask, **kwargs)
    watcher = watchers.get(id(module))
    if watcher is None:
        out, seen = attention(call.q, call.k, call.v, **call.options), None
    else:
        out, seen = watcher.attend(module, call)
    return out.transpose(1, 2).contiguous(), seen


@cache
def register() -> None:
    """Put regard into both registries; without the second one every mask would silently vanish."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    # Not a decorator above: that imports the compiler, which reading a recording does not need.
    AttentionInterface.register(NAME, torch.compiler.disable(attend, reason=UNCOMPILED))
    AttentionMaskInterface.register(NAME, plan_mask)
