"""What cannot be a mask is refused, and the message says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import jaxtyping
import pytest
import torch

from regard.errors import MaskError
from regard.masks import (
    BigBird,
    Causal,
    Chunk,
    Dense,
    Documents,
    Global,
    Longformer,
    Mask,
    Padding,
    Prefix,
    RandomBlocks,
    StreamingSinks,
    Strided,
    Where,
    Window,
)


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are checked in the tests only: here the masks themselves must notice."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


OWN_KEY = "A side counts the query's own key: Window(1) is the diagonal."

TOO_MANY = (
    "RandomBlocks got per_row=3, and length 8 holds 2 blocks of 4; draw fewer, or make the block smaller."
)

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Causal(shift=0.5), "Causal got shift=0.5, a float; it must be a whole number."),
    (lambda: Window(0), f"Window got left=0; it must be at least 1. {OWN_KEY}"),
    (lambda: Window(2**63), f"Window got left={2**63}; positions have 64 bits, so it must be below 2**62."),
    (lambda: Window(-3), f"Window got left=-3; it must be at least 1. {OWN_KEY}"),
    (lambda: Window(3, 0), f"Window got right=0; it must be at least 1. {OWN_KEY}"),
    (lambda: Window(4.0), "Window got left=4.0, a float; it must be a whole number."),
    (lambda: Window(True), "Window got left=True, a bool; it must be a whole number."),
    (lambda: Chunk(0), "Chunk got size=0; it must be at least 1."),
    (lambda: Chunk(4, reach=-1), "Chunk got reach=-1; it must be at least 0."),
    (lambda: Prefix(-1), "Prefix got n=-1; it must be at least 0."),
    (lambda: Global(-1), "Global got tokens=-1; it must be at least 0."),
    (lambda: Global((3, -1)), "Global got a token=-1; it must be at least 0."),
    (lambda: Global("12"), "Global got a token='1', a str; it must be a whole number."),
    (
        lambda: Global(torch.tensor([1, 2])),
        "Global got a tensor; give the positions themselves: Global(tensor.tolist()).",
    ),
    (lambda: Strided(0), "Strided got stride=0; it must be at least 1."),
    (lambda: RandomBlocks(0, 1, 8), "RandomBlocks got block=0; it must be at least 1."),
    (lambda: RandomBlocks(4, 0, 8), "RandomBlocks got per_row=0; it must be at least 1."),
    (lambda: RandomBlocks(4, 1, 0), "RandomBlocks got length=0; it must be at least 1."),
    (
        lambda: RandomBlocks(4, 3, 8),
        TOO_MANY,
    ),
    (
        lambda: RandomBlocks(4, 1, 8).dense(9),
        "RandomBlocks was drawn for 8 keys and k has 9; make it with length=9.",
    ),
    (lambda: Documents(), "Documents got neither of lengths and ids; give exactly one of them."),
    (
        lambda: Documents(lengths=[2], ids=torch.tensor([0, 0])),
        "Documents got both of lengths and ids; give exactly one of them.",
    ),
    (lambda: Documents(lengths=[3, -1]), "Documents got a length=-1; it must be at least 0."),
    (lambda: Documents(lengths=[3, 1.5]), "Documents got a length=1.5, a float; it must be a whole number."),
    (
        lambda: Documents(lengths=[0, 0]),
        "Documents got lengths=(0, 0), which hold no position; give at least one of 1 or more.",
    ),
    (
        lambda: Documents(lengths=torch.ones(2, 2, dtype=torch.int64)),
        "Documents got lengths of shape (2, 2); wanted one list of lengths.",
    ),
    (
        lambda: Documents(ids=torch.ones(4)),
        "Documents got torch.float32 ids; wanted an int tensor that names each position's document.",
    ),
    (
        lambda: Documents(ids=[0, 0, 1]),
        "Documents got ids as a list; wanted an int tensor that names each position's document.",
    ),
    (
        lambda: Documents(ids=torch.ones(1, 2, 3, dtype=torch.int64)),
        "Documents got ids of shape (1, 2, 3); wanted (n,) or (batch, n), not empty.",
    ),
    (
        lambda: Documents(ids=torch.ones(0, dtype=torch.int64)),
        "Documents got ids of shape (0,); wanted (n,) or (batch, n), not empty.",
    ),
    (
        lambda: Padding([True, False]),
        "Padding got a list; wanted a bool tensor. Lengths go through Padding.from_lengths(lengths, k).",
    ),
    (
        lambda: Padding(torch.ones(2, 3, dtype=torch.int64)),
        "Padding got a torch.int64 tensor; it must be bool, True = a real key. "
        "Turn 1 and 0 into bool with .bool(); lengths go through Padding.from_lengths(lengths, k).",
    ),
    (
        lambda: Padding(torch.ones(2, 1, 1, 3, dtype=torch.bool)),
        "Padding got shape (2, 1, 1, 3); wanted (k,) or (batch, k). "
        "A mask over queries as well belongs in Dense.",
    ),
    (
        lambda: Padding.from_lengths([2, 9], k=8),
        "Padding.from_lengths got length 9 in row 1; wanted 0 to k=8.",
    ),
    (
        lambda: Padding.from_lengths([0.5], k=8),
        "Padding.from_lengths got torch.float32 lengths of shape (1,); "
        "wanted one whole number per batch row.",
    ),
    (
        lambda: Dense(torch.zeros(3, 3)),
        "Dense got a torch.float32 tensor; it must be bool. "
        "A mask of 0 and -inf that is added to the scores belongs in bias=.",
    ),
    (
        lambda: Dense(torch.zeros(3, 3, dtype=torch.uint8)),
        "Dense got a torch.uint8 tensor; it must be bool. Turn 1 and 0 into bool with .bool().",
    ),
    (
        lambda: Dense(torch.zeros(2, 3, 3, dtype=torch.bool)),
        "Dense got shape (2, 3, 3); wanted (q, k) or (batch, heads, q, k). "
        "Of three dimensions the first could be either: "
        "write mask[:, None] if it is batch, mask[None] if it is heads.",
    ),
    (lambda: Dense([[True]]), "Dense got a list; wanted a bool tensor."),
    (
        lambda: Mask.from_blocked(torch.zeros(3, 3)),
        "from_blocked got a torch.float32 tensor; it must be bool. "
        "A mask of 0 and -inf that is added to the scores belongs in bias=.",
    ),
    (lambda: Where(3), "Where got 3; wanted a function mask_mod(b, h, q_idx, kv_idx)."),
    (
        lambda: Mask.from_mask_mod(lambda b, h, q, k: q > k, q=3),
        "from_mask_mod got q=3 and k=None; give both lengths, or neither.",
    ),
    (
        lambda: BigBird(4, 16, window_blocks=2),
        "BigBird got window_blocks=2; it must be odd, 1 or more: "
        "the query's own block and as many on either side.",
    ),
    (
        lambda: BigBird(4, 8),
        TOO_MANY,
    ),
    (
        lambda: Longformer(0, 1),
        "Longformer got window=0; it must be at least 1: both sides together, in keys.",
    ),
    (lambda: StreamingSinks(4, 0), f"Window got left=0; it must be at least 1. {OWN_KEY}"),
    (lambda: Causal().tile(5, range(3)), "q is 5; a tile is a range of positions, range(a, b) or (a, b)."),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_refusal_says_what_was_wrong_and_what_to_do(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MaskError, match=f"^{re.escape(message)}$"):
        make()


def test_whole_numbers_of_any_type_are_taken() -> None:
    window = Window(torch.tensor(4))
    assert window == Window(4)
    assert type(window.left) is int
