"""Reading parts of a map: any index NumPy takes gives what NumPy gives, or one clear error."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from choice import Choice, Seeded
from fuzzing.target import Target
from mask_maker import make_mask
from oracle import dense_attention, dense_mask
from regard import AttentionMap
from regard.errors import MapError
from regard.maps.selection import select

__all__ = ["INDEXING", "SELECTION"]

MAPS = 24
# Cells are exp(s - lse) in float64 of scores of a few units.
ATOL = 1e-12


@lru_cache(maxsize=MAPS)
def small_map(number: int) -> tuple[AttentionMap, np.ndarray, np.ndarray]:
    """One of a few maps whose rows are not known yet, its cells and its scores."""
    choice = Seeded(number)
    batch, kv_heads, group = choice.integer(1, 3), choice.integer(1, 2), choice.integer(1, 2)
    q_len, k_len = choice.pick((1, 3, 7, 33)), choice.pick((1, 2, 9, 65))
    heads = kv_heads * group
    generator = torch.Generator().manual_seed(number)
    q, k = (
        torch.randn(batch, h, n, 3, generator=generator, dtype=torch.float64)
        for h, n in ((heads, q_len), (kv_heads, k_len))
    )
    mask = make_mask(choice, q_len, k_len, batch, heads) if choice.flag() else None
    wanted = dense_attention(q, k, k, dense_mask(mask, q, k))
    return AttentionMap.of(q, k, mask), wanted.weights.numpy(), wanted.scores.numpy()


def wanted_of(cells: np.ndarray, index: Any) -> np.ndarray:
    """Each entry by itself, one after another: lists on two axes choose rows and columns, not pairs."""
    parts = [_array(part) for part in (index if isinstance(index, tuple) else (index,))]
    rest = [i for i, part in enumerate(parts) if part is Ellipsis]
    named = sum(map(_width, parts))
    if len(rest) > 1 or named > cells.ndim:
        raise IndexError("too many")
    place = rest[0] if rest else len(parts)
    axis = 0
    for part in [*parts[:place], *[slice(None)] * (cells.ndim - named), *parts[place + 1 :]]:
        left = cells.ndim - axis - _width(part)
        cells = cells[(slice(None),) * axis + (part,)]
        axis = cells.ndim - left
    return cells


def _array(part: Any) -> Any:
    """An index as NumPy wants it."""
    if isinstance(part, Tensor):
        return part.numpy()
    if isinstance(part, list | range):
        return np.array(part, dtype=None if len(part) else np.int64)
    return part


def _width(part: Any) -> int:
    """How many axes an entry covers."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def number(choice: Choice, size: int) -> int:
    """An index that is mostly inside, on either side of 0."""
    return choice.integer(-size, size - 1) if choice.integer(0, 19) else choice.pick((size, -size - 1, 2**40))


def part_of(choice: Choice, shape: tuple[int, ...]) -> Any:
    """An index of the first of some axes; or of more of them, or of none."""
    size = shape[0]

    def edge() -> int | None:
        return choice.integer(-size - 2, size + 2) if choice.flag() else None

    def some() -> list[int]:
        return [number(choice, size) for _ in range(choice.integer(0, 4))]

    kinds: list[Callable[[], Any]] = [
        lambda: number(choice, size),
        lambda: slice(edge(), edge(), choice.pick((None, 1, 2, 3, -1, -2))),
        lambda: slice(None),
        some,
        lambda: torch.tensor(some(), dtype=torch.int64),
        lambda: np.array(some(), dtype=np.int64)[:: choice.pick((1, -1))],
        lambda: np.array([[number(choice, size)] for _ in range(2)], dtype=np.int64),
        lambda: np.int64(number(choice, size)) if choice.flag() else torch.tensor(number(choice, size)),
        lambda: range(choice.integer(0, size - 1), choice.integer(0, size), choice.pick((1, 2))),
        lambda: flags(choice, shape[: choice.integer(1, 2)]),
        lambda: None,
    ]
    return choice.pick(kinds)()


def flags(choice: Choice, shape: tuple[int, ...]) -> Any:
    """Flags over some axes, now and then for other sizes, as a tensor or an array."""
    wrong = (shape[0] + 1, *shape[1:])
    made = torch.rand(wrong if choice.integer(0, 9) == 0 else shape) < 0.5
    return made if choice.flag() else made.numpy()


def index_of(choice: Choice, shape: tuple[int, ...]) -> Any:
    """An index of up to four axes, an ellipsis among them now and then."""
    torch.manual_seed(choice.seed())
    parts: list[Any] = [part_of(choice, shape[axis:]) for axis in range(choice.integer(1, 4))]
    if choice.integer(0, 3) == 0:
        parts[choice.integer(0, len(parts) - 1)] = Ellipsis
    return parts[0] if len(parts) == 1 and choice.flag() else tuple(parts)


def check(seed: int) -> int:
    choice = Seeded(seed)
    seen, cells, scores = small_map(choice.integer(0, MAPS - 1))
    index, of_scores = index_of(choice, seen.shape), choice.integer(0, 4) == 0
    wanted = _or_none(lambda: wanted_of(scores if of_scores else cells, index), IndexError)
    got = _or_none(lambda: seen.scores(index) if of_scores else seen[index], MapError)
    _agree(index, None if got is None else got.numpy(), wanted)
    return 1


def check_selection(seed: int) -> int:
    """Which cells an index chooses, by their numbers, without computing any."""
    choice = Seeded(seed)
    shape = tuple(choice.pick((1, 2, 3, 5, 8, 33)) for _ in range(4))
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    index = index_of(choice, shape)
    chosen = _or_none(lambda: select(index, shape), MapError)
    got = None
    if chosen is not None:
        got = numbers[np.ix_(*(axis.numpy() for axis in chosen.axes))]
        got = chosen.arranged(torch.from_numpy(got)).numpy()
    _agree(index, got, _or_none(lambda: wanted_of(numbers, index), IndexError))
    return 1


def _or_none(read: Callable[[], Any], refusal: type[Exception]) -> Any:
    """What is read, or None where it is refused as it should be."""
    try:
        return read()
    except refusal:
        return None


def _agree(index: Any, got: np.ndarray | None, wanted: np.ndarray | None) -> None:
    assert (got is None) == (wanted is None), f"{index}: regard {got is not None}, NumPy {wanted is not None}"
    if got is not None and wanted is not None:
        assert got.shape == wanted.shape, (index, got.shape, wanted.shape)
        assert np.array_equal(got, wanted) or np.allclose(got, wanted, rtol=0, atol=ATOL), index


INDEXING = Target("indexing", "one index of a map, against NumPy", check, tested=200)
SELECTION = Target("selection", "which cells one index chooses, against NumPy", check_selection, tested=500)
