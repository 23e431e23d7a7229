"""Keys and queries that a recording holds in fewer bits, and how far its weights are from the exact ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RecordingError
from regard.maps import AttentionMap

__all__ = ["Rounded", "Rounding", "largest_difference", "restored", "rounded"]

WORDS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
DTYPES = {
    str(x).removeprefix("torch."): x for x in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}
# The largest number of float8_e4m3fn.
LARGEST = 448.0
# How many rows of each map are compared with the exact ones.
SAMPLE = 16


@dataclass(frozen=True)
class Rounding:
    """How keys and queries are written: "bf16", "fp8", or None for as the model computed them."""

    keys: str | None = None
    queries: str | None = None

    def __post_init__(self) -> None:
        for name, word in (("keys", self.keys), ("queries", self.queries)):
            if word is not None and word not in WORDS:
                raise RecordingError(
                    f"{name} is {word!r}; wanted 'bf16' or 'fp8', or nothing to store them as they are."
                )

    @property
    def words(self) -> dict[str, str | None]:
        """By the names of the tensors."""
        return {"k": self.keys, "q": self.queries}

    def __bool__(self) -> bool:
        return bool(self.keys or self.queries)


@dataclass(frozen=True)
class Rounded:
    """What was rounded, and the largest difference of a weight from the exact one in a sample of rows."""

    keys: str | None
    queries: str | None
    dtype: str
    """The dtype in which the model computed."""
    rows: tuple[int, ...]
    """The rows that were compared, in every head."""
    largest: float

    @classmethod
    def of(cls, said: dict[str, Any] | None) -> Rounded | None:
        """From a manifest."""
        if said is None:
            return None
        if said["dtype"] not in DTYPES:
            raise RecordingError(f"dtype is {said['dtype']!r}, which no rounded tensor has. Record again.")
        return cls(**{**said, "rows": tuple(said["rows"]), "largest": float(said["largest"])})

    def __str__(self) -> str:
        """
        >>> print(Rounded("fp8", None, "float32", (0, 5), 0.0123))
        keys in fp8, weights within 0.0123 of the exact ones in a sample
        """
        words = {"keys": self.keys, "queries": self.queries}
        what = " and ".join(f"{name} in {word}" for name, word in words.items() if word)
        return f"{what}, weights within {self.largest:.3g} of the exact ones in a sample"


def rounded(
    x: Float[Tensor, "batch heads n dim"], word: str
) -> tuple[Tensor, Float[Tensor, "batch heads"] | None]:
    """x in fewer bits and, with 8 bits, the number that each head is to be multiplied by.

    That number is a power of two: a float8 times a power of two is also a bfloat16, so that reading loses
    nothing more. Tensors that have no more bits already are returned as they are.
    """
    if word == "bf16":
        return (x if x.element_size() <= 2 else x.bfloat16()), None
    small = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scale = torch.ones(x.shape[:2], device=x.device)
    for head in range(x.shape[1]):  # one at a time, because wider copies of all heads would take much memory
        one = x[:, head].float()
        # Behind the mask there may be anything: it must not decide how the other numbers are rounded.
        largest = torch.where(one.isfinite(), one, 0).abs().flatten(1).amax(1)
        _, exponent = torch.frexp(largest / LARGEST)
        power = torch.ldexp(torch.ones_like(largest), exponent)
        scale[:, head] = torch.where(largest > 0, power, 1.0)
        small[:, head] = (one / scale[:, head, None, None]).clamp(-LARGEST, LARGEST)
    return small, scale


def restored(x: Tensor, scale: Tensor | None, dtype: str) -> Tensor:
    """Rounded numbers in the dtype in which the model computed."""
    wide = x.to(DTYPES[dtype])
    return wide if scale is None else wide * scale[..., None, None].to(wide.dtype)


def largest_difference(exact: AttentionMap, rough: AttentionMap) -> tuple[tuple[int, ...], float]:
    """Some rows, evenly spaced to the last, and the largest difference of a weight in them."""
    n = exact.shape[2]
    rows = tuple(dict.fromkeys(torch.linspace(0, n - 1, SAMPLE).round().long().tolist()))
    found = torch.zeros((), device=exact.device)
    for row in rows:
        one, other = exact[:, :, row : row + 1], rough[:, :, row : row + 1]
        # Weights are between 0 and 1: none differs by more.
        difference = torch.where(one.isfinite(), (one - other).abs().nan_to_num(1.0), 0)
        found = torch.maximum(found, difference.amax() if difference.numel() else found)
    return rows, float(found)
