"""Hypothesis strategies that tests of several packages share."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st

from choice import Choice, Drawn
from mask_maker import make_held_mask, make_mask, make_shape
from regard.masks import Mask

__all__ = ["held_masks", "lengths", "masks", "shapes"]


def lengths(most: int = 65) -> st.SearchStrategy[int]:
    """Lengths on either side of the sizes where tiles end."""
    return st.sampled_from([n for n in (1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 129) if n <= most])


def shapes(k: int) -> st.SearchStrategy[Mask]:
    """Masks that are closed forms of positions, at sizes that matter for k keys."""
    return _made(lambda choice: make_shape(choice, k))


def held_masks(q: int, k: int, batch: int = 1, heads: int = 1) -> st.SearchStrategy[Mask]:
    """Masks that hold a tensor, for exactly these sizes; some vary over batch and heads, some do not."""
    return _made(lambda choice: make_held_mask(choice, q, k, batch, heads))


def masks(q: int, k: int, batch: int = 1, heads: int = 1, leaves: int = 4) -> st.SearchStrategy[Mask]:
    """Any mask that is valid for q queries and k keys: joins of up to `leaves` others."""
    return _made(lambda choice: make_mask(choice, q, k, batch, heads, leaves))


@st.composite
def _made(draw: st.DrawFn, make: Callable[[Choice], Mask]) -> Mask:
    # The shape checker picks items of containers with `random`, whose state belongs to Hypothesis.
    state = random.getstate()
    try:
        return make(Drawn(draw))
    finally:
        random.setstate(state)
