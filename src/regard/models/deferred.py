"""Statistics of generated tokens, computed for many tokens in one call: many rows cost hardly more than
one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import RecordingError
from regard.masks import And, Coverage
from regard.models.call import AttentionCall
from regard.models.plan import MaskPlan
from regard.models.translate import Frame

__all__ = ["Deferred", "Observe", "may_wait", "only_appends"]

# Observes a call, given the largest number of keys that any of its rows had.
Observe = Callable[[AttentionCall, int], None]
# The largest number of rows that wait in one layer.
ROWS = 128


def only_appends(cache: Any) -> bool:
    """Whether a cache makes new tensors at every step, so that the tensors of earlier steps never change."""
    from transformers import DynamicCache

    cache = getattr(cache, "self_attention_cache", cache)
    return type(cache) is DynamicCache and not cache.offloading


def may_wait(call: AttentionCall) -> bool:
    """Whether a call of a few new rows can be observed later, in one call with the rows after it."""
    learns = torch.is_grad_enabled() and call.q.requires_grad
    described = call.plan is not None and call.bias is None
    cast = torch.is_autocast_enabled(call.q.device.type)
    return described and not (learns or cast or call.dropout) and call.q.shape[2] < ROWS


class Deferred:
    """The rows of consecutive calls of one layer in one text, kept until they are observed.

    `keys` and `values` hold the tensors of the last call. Once a sliding cache drops keys, they hold the
    tensors of the last call before that, and the new keys and values of each call since.
    """

    def __init__(self, call: AttentionCall, observe: Observe) -> None:
        self.last, self.observe = call, observe
        self.frames, self.queries = [call.frame], [call.q]
        self.keys, self.values = [call.k], [call.v]
        self.rows = call.q.shape[2]
        self._writes = _writes(call)

    def add(self, call: AttentionCall) -> bool:
        """Add a call's rows; False if it does not continue the earlier calls, or would exceed ROWS."""
        new, frame = call.q.shape[2], call.frame
        if self.rows + new > ROWS or not self._goes_on(call):
            return False
        if frame.k_start == self.frames[0].k_start:
            self.keys, self.values = [call.k], [call.v]
        else:
            # Cloned, because a view of one new key would keep the whole cache in memory.
            self.keys.append(call.k[:, :, -new:].clone())
            self.values.append(call.v[:, :, -new:].clone())
        self.frames.append(frame)
        self.queries.append(call.q)
        self.rows += new
        self.last, self._writes = call, _writes(call)
        return True

    def finish(self) -> None:
        """Observe all rows.

        This takes one call if the mask hides from each row the keys that the cache had dropped before it.
        """
        if self._writes != _writes(self.last):
            raise RecordingError(
                "keys or values of the cache were changed in place before the statistics of generated tokens "
                "were computed. Read the recording before you change the cache."
            )
        first, last = self.frames[0], self.frames[-1]
        keys = last.k_start + last.k - first.k_start
        together = replace(first, q=self.rows, k=keys)
        calls = [(together, torch.cat(self.queries, 2))]
        if len(self.frames) > 1 and not self._hidden(together):
            calls = [*zip(self.frames, self.queries, strict=True)]
        with torch.no_grad():
            k, v = (x[0] if len(x) == 1 else torch.cat(x, 2) for x in (self.keys, self.values))
            for frame, q in calls:
                own = slice(frame.k_start - first.k_start, frame.k_start - first.k_start + frame.k)
                most = max(each.k for each in self.frames) if frame is together else frame.k
                self.observe(self._call(frame, q, k[:, :, own], v[:, :, own]), most)

    def _call(self, frame: Frame, q: Tensor, k: Tensor, v: Tensor) -> AttentionCall:
        plan = self._plan(frame)
        return replace(self.last, q=q, k=k, v=v, plan=plan, mask=plan.mask(frame.q, frame.k))

    def _plan(self, frame: Frame) -> MaskPlan:
        if self.last.plan is None:
            raise RuntimeError("a call without a plan cannot wait")
        return replace(self.last.plan, frame=frame)

    def _hidden(self, together: Frame) -> bool:
        """Whether the mask hides from every row the keys that the cache had dropped before it."""
        dropped = torch.tensor([each.k_start - together.k_start for each in self.frames])
        counts = torch.tensor([each.q for each in self.frames])
        stop = counts.cumsum(0) + together.k - together.q
        some = dropped > 0
        if not bool(some.any()):
            return True
        mask = self._plan(together).mask(together.q, together.k)
        parts = () if mask is None else mask.parts if isinstance(mask, And) else (mask,)
        tiles = [x[some] for x in (stop - counts, stop, torch.zeros_like(dropped), dropped)]
        return any(bool((part.cover(*tiles) == Coverage.EMPTY).all()) for part in parts)

    def _goes_on(self, call: AttentionCall) -> bool:
        """Whether a call's keys are the earlier keys, or the last of them, followed by its new keys."""
        last, before, now = self.last, self.last.frame, call.frame
        stop = before.k_start + before.k
        if now.q_start != before.q_start + before.q or now.k_start + now.k != stop + now.q:
            return False
        shared = min(before.k, stop - now.k_start)
        if now.k_start < before.k_start or shared < 1 or call.k.shape[0] != last.k.shape[0]:
            return False
        if (call.scale, call.softcap) != (last.scale, last.softcap) or not _same(call.sink, last.sink):
            return False
        # In a batch, beam search may exchange rows whose last keys are alike.
        some = 1 if call.k.shape[0] == 1 else shared
        end = now.k - now.q
        return torch.equal(last.k[:, :, before.k - some :], call.k[:, :, end - some : end])


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _writes(call: AttentionCall) -> list[int]:
    """How often keys and values were written to. PyTorch does not count for inference tensors."""
    return [x._version for x in (call.k, call.v) if not x.is_inference()]
