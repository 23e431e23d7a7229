"""`KVCache`: keys and values of earlier tokens, for decoding step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import DeviceError, DtypeError, MaskError, ShapeError
from regard.masks import Causal, Mask, StreamingSinks
from regard.masks.checks import whole

__all__ = ["KVCache"]


class KVCache:
    """Keys and values of all tokens so far, growing in place; optionally only of a window and some sinks.

    With `window` the cache keeps the first `sinks` tokens and the last `window` tokens (after a step of
    several queries, also those that its earliest query may see). `mask` is the mask for the kept keys; recent
    keys stay at the end, next to the queries, so the window is the same in terms of kept keys.

    Gradients flow into keys and values that require grad. Each step then copies the kept keys, because a
    backward pass must read them unchanged: decode under `torch.no_grad()` if you don't need gradients.

    >>> import torch, regard
    >>> cache = regard.KVCache(window=4, sinks=1)
    >>> for step in range(10):
    ...     q, k, v = torch.randn(3, 1, 2, 1, 8).unbind()
    ...     keys, values = cache.append(k, v)
    ...     out = regard.attention(q, keys, values, mask=cache.mask)
    >>> cache, keys.shape[2]
    (KVCache(seen=10, kept=5, window=4, sinks=1), 5)
    """

    def __init__(self, window: int | None = None, sinks: int = 0) -> None:
        sinks = whole(self, "sinks", sinks)
        window = None if window is None else whole(self, "window", window)
        if window is not None and window < 1:
            raise MaskError(f"window is {window}; it must be at least 1, or None to keep everything.")
        if sinks < 0 or (sinks and window is None):
            raise MaskError(
                f"sinks is {sinks} and window is {window}; sinks must be 0 or more and need a window."
            )
        self.window, self.sinks = window, sinks
        self.seen = 0
        self._length = 0
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    @property
    def mask(self) -> Mask:
        """The mask between the newest queries and the kept keys."""
        return Causal() if self.window is None else StreamingSinks(self.sinks, self.window)

    @property
    def k(self) -> Float[Tensor, "batch heads k dim"]:
        return self._filled(self._k)

    @property
    def v(self) -> Float[Tensor, "batch heads k v_dim"]:
        return self._filled(self._v)

    def __len__(self) -> int:
        """The number of kept keys."""
        return self._length

    def __repr__(self) -> str:
        window = "" if self.window is None else f", window={self.window}, sinks={self.sinks}"
        return f"KVCache(seen={self.seen}, kept={len(self)}{window})"

    def append(
        self, k: Float[Tensor, "batch heads new dim"], v: Float[Tensor, "batch heads new v_dim"]
    ) -> tuple[Float[Tensor, "batch heads k dim"], Float[Tensor, "batch heads k v_dim"]]:
        """Append new keys and values; returns all keys and values that the new queries may see.

        The result is a view of the cache's memory, valid until the next append; if it requires grad, it stays
        valid.
        """
        self._check(k, v)
        new = k.shape[2]
        if self._learns(k, v):
            return self._joined(k, v)
        if self.window is not None:
            self._forget(self.window - 1)
        keys, values = self._reserve(k, v, self._length + new)
        keys[:, :, self._length : self._length + new] = k
        values[:, :, self._length : self._length + new] = v
        self._length += new
        self.seen += new
        return self.k, self.v

    def reset(self) -> None:
        """Remove all keys, but keep the memory."""
        self.seen = self._length = 0
        if self._k is not None and self._v is not None:
            # Replace memory that belongs to an autograd graph, which must not be overwritten.
            self._k, self._v = (x.new_empty(x.shape) if x.requires_grad else x for x in (self._k, self._v))

    def trim(self, n: int) -> None:
        """Drop the newest n tokens, for rejected drafts of speculative decoding.

        With a window, only tokens of the last step can be dropped, because older keys that the window would
        need are gone. Append drafts in one step.

        >>> cache = KVCache()
        >>> _ = cache.append(torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 4))
        >>> cache.trim(2)
        >>> cache
        KVCache(seen=3, kept=3)
        """
        n = whole(self, "n", n)
        if not 0 <= n <= self.seen:
            raise ShapeError(
                f"trim got n={n}, and the cache has seen {self.seen} tokens; wanted 0 to {self.seen}."
            )
        forgotten = self.seen - self._length
        room = self._length if self.window is None else self._length - self.sinks - (self.window - 1)
        if forgotten and n > room:
            raise ShapeError(
                f"trim got n={n}; of {self!r} only the newest {room} can be dropped, as the keys that the "
                "window would then need are forgotten. Append drafts in one step, or keep no window."
            )
        self.seen -= n
        self._length -= n

    def reorder(self, rows: Tensor | Sequence[int]) -> None:
        """Reorder batch rows, for beam search; rows may be left out or repeated."""
        if self._k is not None and self._v is not None:
            chosen = _batch_rows(rows, self._k.shape[0]).to(self._k.device)
            with _lasting():
                self._k, self._v = self._k.index_select(0, chosen), self._v.index_select(0, chosen)

    def _learns(self, k: Tensor, v: Tensor) -> bool:
        """Whether a backward pass may need these keys and values, or those in the cache."""
        new = torch.is_grad_enabled() and (k.requires_grad or v.requires_grad)
        return new or any(x is not None and x.requires_grad for x in (self._k, self._v))

    def _joined(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append without overwriting the keys and values that are kept."""
        sinks = min(self.sinks, self._length)
        recent = self._length if self.window is None else self.window - 1
        start = max(sinks, self._length - recent)
        self.seen += k.shape[2]
        with _lasting():
            keys, values = (
                torch.cat(
                    [new] if old is None else [old[:, :, :sinks], old[:, :, start : self._length], new], 2
                )
                for old, new in ((self._k, k), (self._v, v))
            )
        self._k, self._v, self._length = keys, values, keys.shape[2]
        return keys, values

    def _filled(self, buffer: Tensor | None) -> Tensor:
        if buffer is None:
            raise ShapeError("the cache is empty; append keys and values first.")
        return buffer[:, :, : self._length]

    def _forget(self, recent: int) -> None:
        """Keep the sinks and the last `recent` keys, which are moved only when the gap is large enough."""
        extra = self._length - self.sinks - recent
        if extra <= 0 or self._k is None or self._v is None:
            return
        for buffer in (self._k, self._v):
            kept = buffer[:, :, self._length - recent : self._length].clone()
            buffer[:, :, self.sinks : self.sinks + recent] = kept
        self._length = self.sinks + recent

    def _reserve(self, k: Tensor, v: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Double the memory when it runs out, so that appending n tokens copies O(n) keys."""
        if self._k is None or self._v is None or self._k.shape[2] < length:
            room = max(length, 2 * self._length, 16)
            self._k, self._v = self._moved(self._k, k, room), self._moved(self._v, v, room)
        return self._k, self._v

    def _moved(self, old: Tensor | None, like: Tensor, room: int) -> Tensor:
        with _lasting():
            new = torch.empty(*like.shape[:2], room, like.shape[3], dtype=like.dtype, device=like.device)
        if old is not None:
            new[:, :, : self._length] = old[:, :, : self._length]
        return new

    def _check(self, k: Tensor, v: Tensor) -> None:
        for name, x in (("k", k), ("v", v)):
            if not isinstance(x, Tensor):
                raise DtypeError(f"{name} is a {type(x).__name__}; it must be a torch.Tensor.")
        if k.ndim != 4 or v.ndim != 4 or k.shape[:3] != v.shape[:3]:
            raise ShapeError(
                f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}; both must be (batch, heads, new, dim) "
                "with the same batch, heads and length."
            )
        if self._k is None or self._v is None:
            return
        for name, new, old in (("k", k, self._k), ("v", v, self._v)):
            if (*new.shape[:2], new.shape[3]) != (*old.shape[:2], old.shape[3]):
                raise ShapeError(
                    f"{name} has shape {tuple(new.shape)}; this cache holds (batch, heads, dim) = "
                    f"{(*old.shape[:2], old.shape[3])}. Use one cache per layer and batch."
                )
            if new.dtype != old.dtype:
                raise DtypeError(f"{name} is {new.dtype}; this cache holds {old.dtype}. Convert it with .to.")
            if new.device != old.device:
                raise DeviceError(
                    f"{name} is on {new.device}; this cache is on {old.device}. Move it with .to."
                )


@contextmanager
def _lasting() -> Iterator[None]:
    """Make tensors that may be written to later: those of inference mode may not, outside it."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def _batch_rows(rows: Tensor | Sequence[int], batch: int) -> Int64[Tensor, " rows"]:
    """Check the numbers of batch rows."""
    try:
        chosen = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        raise DtypeError(
            f"rows is {rows!r}; wanted a list or tensor of batch rows, such as [1, 0]."
        ) from None
    if chosen.dtype == torch.bool:
        raise DtypeError(
            f"rows are {chosen.numel()} flags; wanted the numbers of batch rows. "
            "Turn flags into numbers with flags.nonzero().flatten()."
        )
    if chosen.numel() and (chosen.is_floating_point() or chosen.is_complex()):
        raise DtypeError(f"rows are {chosen.dtype}; wanted ints. Convert them with .long().")
    if chosen.ndim != 1:
        raise ShapeError(f"rows have shape {tuple(chosen.shape)}; wanted one list of batch rows.")
    wrong = chosen[(chosen < 0) | (chosen >= batch)]
    if len(wrong):
        raise ShapeError(
            f"rows hold {int(wrong[0])}, and this cache has {batch} batch rows; wanted 0 to {batch - 1}."
        )
    return chosen.long()
