"""Combinations of masks: & | ~."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.extension import implements
from regard.masks.base import Mask

__all__ = ["And", "Not", "Or", "checked_part"]


@dataclass(frozen=True, repr=False, init=False)
class _Join(Mask):
    """The base class of And, Or and Not, which evaluate each part."""

    parts: tuple[Mask, ...]

    def __init__(self, *parts: Mask) -> None:
        object.__setattr__(self, "parts", tuple(checked_part(part) for part in parts))
        if not parts:
            raise MaskError(f"{type(self).__name__} got no masks; give it at least one.")
        self._agreed("batch", "batch rows")
        self._agreed("heads", "heads")

    @property
    def batch(self) -> int | None:
        return self._agreed("batch", "batch rows")

    @property
    def heads(self) -> int | None:
        return self._agreed("heads", "heads")

    @property
    def relative(self) -> bool:
        return all(part.relative for part in self.parts)

    def select(self, row: int) -> Mask:
        return self._each(lambda part: part.select(row))

    def bind(self, batch: int, heads: int) -> Mask:
        return self._each(lambda part: part.bind(batch, heads))

    def to(self, device: torch.device | str) -> Mask:
        return self._each(lambda part: part.to(device))

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        for part in self.parts:
            part.check(q, k, batch, heads)

    @abstractmethod
    def __repr__(self) -> str: ...

    def _each(self, change: Callable[[Mask], Mask]) -> Mask:
        changed = tuple(change(part) for part in self.parts)
        # Most parts are unchanged; then return the same object, which keeps its cached results.
        same = all(new is old for new, old in zip(changed, self.parts, strict=True))
        return self if same else type(self)(*changed)

    def _agreed(self, name: str, what: str) -> int | None:
        """The number of batch rows (or heads), on which all parts that have any must agree."""
        known, first = None, None
        for part in self.parts:
            size = getattr(part, name)
            if known is None:
                known, first = size, part
            elif size is not None and size != known:
                raise MaskError(
                    f"{first!r} holds {known} {what} and {part!r} holds {size}; "
                    "masks that are joined must agree."
                )
        return known


@dataclass(frozen=True, repr=False, init=False)
class And(_Join):
    """Pairs that every part allows; written `a & b`.

    >>> from regard.masks import Causal, Chunk
    >>> Causal() & Chunk(2)
    Causal() & Chunk(size=2)
    >>> print((Causal() & Chunk(2)).draw(4))
    # . . .
    # # . .
    . . # .
    . . # #
    """

    def __init__(self, *parts: Mask) -> None:
        super().__init__(*_flattened(And, parts))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return reduce(torch.logical_and, (part.allows(q, k) for part in self.parts))

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        return reduce(torch.minimum, (part.cover(q_start, q_stop, k_start, k_stop) for part in self.parts))

    def spans(self, q: Tensor) -> tuple[Tensor, Tensor] | None:
        spans = [part.spans(q) for part in self.parts]
        known = [span for span in spans if span is not None]
        if len(known) < len(spans):
            return None
        lows, highs = zip(*known, strict=True)
        return reduce(torch.maximum, lows), reduce(torch.minimum, highs)

    def __repr__(self) -> str:
        return " & ".join(_bracketed(part) for part in self.parts)


@dataclass(frozen=True, repr=False, init=False)
class Or(_Join):
    """Pairs that at least one part allows; written `a | b`.

    >>> from regard.masks import Prefix, Window
    >>> Window(1) | Prefix(1)
    Window(left=1) | Prefix(n=1)
    >>> print((Window(1) | Prefix(1)).draw(3))
    # . .
    # # .
    # . #
    """

    def __init__(self, *parts: Mask) -> None:
        super().__init__(*_flattened(Or, parts))

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return reduce(torch.logical_or, (part.allows(q, k) for part in self.parts))

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        return reduce(torch.maximum, (part.cover(q_start, q_stop, k_start, k_stop) for part in self.parts))

    def __repr__(self) -> str:
        return " | ".join(_bracketed(part) for part in self.parts)


@dataclass(frozen=True, repr=False, init=False)
class Not(_Join):
    """Pairs that the part does not allow; written `~a`.

    >>> from regard.masks import Causal
    >>> ~Causal()
    ~Causal()
    >>> print((~Causal()).draw(3))
    . # #
    . . #
    . . .
    """

    def __init__(self, part: Mask) -> None:
        super().__init__(part)

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return ~self.parts[0].allows(q, k)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        return 2 - self.parts[0].cover(q_start, q_stop, k_start, k_stop)

    def __invert__(self) -> Mask:
        return self.parts[0]

    def __repr__(self) -> str:
        return f"~{_bracketed(self.parts[0])}"


def checked_part(part: object) -> Mask:
    """The part, or MaskError if it is not a mask."""
    if isinstance(part, Mask):
        return part
    if isinstance(part, Tensor):
        raise MaskError(
            f"a mask was joined with a {part.dtype} tensor of shape {tuple(part.shape)}; wrap the tensor: "
            "Dense(tensor) for a matrix, Padding(tensor) for one flag per key (bool, True = may attend)."
        )
    remedy = " Wrap a mask_mod function: Where(fn)." if callable(part) else ""
    raise MaskError(f"a mask was joined with a {type(part).__name__}; masks join only with masks.{remedy}")


@implements(Mask.__and__)
def _and(self: Mask, other: object) -> Mask:
    return And(self, checked_part(other))


@implements(Mask.__or__)
def _or(self: Mask, other: object) -> Mask:
    return Or(self, checked_part(other))


@implements(Mask.__invert__)
def _not(self: Mask) -> Mask:
    return Not(self)


def _flattened(kind: type[Mask], parts: tuple[Mask, ...]) -> list[Mask]:
    """The parts, with nested joins of the same class flattened: (a & b) & c is a & b & c."""
    flat: list[Mask] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, _Join) and isinstance(part, kind) else (part,))
    return flat


def _bracketed(part: Mask) -> str:
    return f"({part!r})" if isinstance(part, And | Or) else repr(part)
