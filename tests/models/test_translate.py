"""Mask functions become masks that allow exactly the same pairs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import masking_utils as made

from effort import examples
from regard.masks import Causal, Chunk, Documents, Padding, Where, Window
from regard.models.translate import Frame, translate


def oracle(function, frame: Frame, batch: int = 2) -> torch.Tensor:
    """Every pair, one call of the function each."""
    allowed = torch.zeros(batch, 1, frame.q, frame.k, dtype=torch.bool)
    for b in range(batch):
        for i in range(frame.q):
            for j in range(frame.k):
                index = [torch.tensor(x) for x in (b, 0, i + frame.q_start, j + frame.k_start)]
                allowed[b, 0, i, j] = function(*index)
    return allowed


def dense(mask, frame: Frame, batch: int = 2) -> torch.Tensor:
    if mask is None:
        return torch.ones(batch, 1, frame.q, frame.k, dtype=torch.bool)
    matrix = mask.bind(batch, 4).dense(frame.q, frame.k)
    return matrix.expand(batch, 1, frame.q, frame.k)


PREFILL = Frame(9, 9)


@st.composite
def frames(draw) -> Frame:
    """Prefill, decoding, sliding caches that dropped keys, static caches with spare keys, other texts."""
    q, k = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    return Frame(q, k, draw(st.integers(0, 6)), draw(st.integers(0, 4)))


@st.composite
def functions(draw, length: int = 24):
    """Compositions as transformers makes them, over tables long enough for every frame."""
    rows = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    padding = torch.rand(2, length, generator=rows) < 0.7
    packed = (torch.rand(2, length, generator=rows) < 0.3).cumsum(-1)
    blocks = torch.where(torch.rand(2, length, generator=rows) < 0.5, packed, -1)
    leaves = [
        made.causal_mask_function,
        made.bidirectional_mask_function,
        made.sliding_window_overlay(draw(st.integers(1, 6))),
        made.sliding_window_bidirectional_overlay(draw(st.integers(0, 6))),
        made.chunked_overlay(draw(st.integers(1, 5)), torch.tensor([draw(st.integers(0, 4)), 0])),
        made.padding_mask_function(padding),
        made.packed_sequence_mask_function(packed),
        made.blockwise_overlay(blocks),
        lambda b, h, q, k: (q + k) % 3 != 0,
    ]
    chosen = draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=3, unique=True))
    join = draw(st.sampled_from([made.and_masks, made.or_masks]))
    return chosen[0] if len(chosen) == 1 else join(*chosen)


@st.composite
def packings(draw, length: int = 24):
    """Several texts in one row, as transformers joins their mask with another; sometimes only one."""
    rows = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    begins = torch.rand(2, length, generator=rows) < draw(st.sampled_from([0.0, 0.2, 0.5]))
    begins[:, 0] = False
    place = torch.arange(length).expand(2, -1)
    first = torch.where(begins, place, 0).cummax(-1).values
    positions = place - first + draw(st.integers(0, 3))
    if draw(st.booleans()):
        # Not as a text is counted: nothing may be concluded from distances.
        positions = positions * 2
    # Positions are indices for these, and go further than the row is long where they go up by two.
    inner = draw(functions(2 * length + 8))
    return made.packed_sequence_compatibility_function(inner, positions, begins.cumsum(-1))


@examples(150)
@given(function=packings(), frame=frames())
def test_packed_texts_see_the_pairs_the_function_allows(function, frame):
    assert torch.equal(dense(translate(function, frame), frame), oracle(function, frame))


@pytest.mark.parametrize(
    ("inner", "shape"),
    [
        (made.causal_mask_function, Causal()),
        (made.bidirectional_mask_function, None),
        (made.sliding_window_causal_mask_function(4), Window(4) & Causal()),
        (made.sliding_window_bidirectional_mask_function(3), Window(4)),
        (
            made.chunked_causal_mask_function(3, torch.zeros(1, dtype=int)),
            Documents(ids=torch.tensor([[0, 0, 0, 1, 2, 2, 2, 3, 3]])) & Causal(),
        ),
    ],
)
def test_packed_texts_keep_the_shape_of_their_mask(inner, shape):
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    texts = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    packed = Documents(ids=texts)
    mask = translate(made.packed_sequence_compatibility_function(inner, positions, texts), PREFILL)
    assert mask == (packed if shape is None else shape & packed)


def even(b, h, q, k):
    return k % 2 == 0


def test_a_function_of_ones_own_in_packed_texts_keeps_its_name():
    positions, texts = torch.tensor([[0, 1, 0, 1, 2]]), torch.tensor([[0, 0, 1, 1, 1]])
    inner = made.and_masks(made.causal_mask_function, even)
    mask = translate(made.packed_sequence_compatibility_function(inner, positions, texts), Frame(5, 5))
    assert str(mask) == "Causal() & Where(even) & Documents(ids=<1 × 5>)"


@examples(150)
@given(function=functions(), frame=frames())
def test_a_translated_mask_allows_the_pairs_the_function_allows(function, frame):
    mask = translate(function, frame)
    assert torch.equal(dense(mask, frame), oracle(function, frame))


@examples(60)
@given(function=functions(), frame=frames())
def test_a_translated_mask_calls_no_tile_empty_that_has_a_pair(function, frame):
    mask = translate(function, frame)
    if mask is not None:
        first = frame.k - frame.q
        coverage = mask.bind(2, 4).coverage((first, frame.k), (0, frame.k))
        allowed = oracle(function, frame)
        assert coverage != 0 or not allowed.any()
        assert coverage != 2 or allowed.all()


@pytest.mark.parametrize(
    ("function", "frame", "shape"),
    [
        (made.causal_mask_function, PREFILL, Causal()),
        (made.causal_mask_function, Frame(1, 9, 8), Causal()),
        (made.causal_mask_function, Frame(5, 9), Causal(shift=-4)),
        (made.bidirectional_mask_function, PREFILL, None),
        (made.sliding_window_causal_mask_function(4), PREFILL, Window(4) & Causal()),
        (made.sliding_window_causal_mask_function(4), Frame(1, 4, 20, 17), Window(4) & Causal()),
        (made.sliding_window_bidirectional_mask_function(3), PREFILL, Window(4)),
        (made.chunked_causal_mask_function(4, torch.zeros(2, dtype=int)), PREFILL, Chunk(4) & Causal()),
        (made.padding_mask_function(torch.ones(2, 9, dtype=torch.bool)), PREFILL, None),
    ],
)
def test_the_functions_of_transformers_become_shapes(function, frame, shape):
    assert translate(function, frame) == shape


def test_padding_becomes_padding_and_packing_becomes_documents():
    valid = torch.tensor([[False, True, True], [True, True, True]])
    assert translate(made.padding_mask_function(valid), Frame(3, 3)) == Padding(valid)
    packed = torch.tensor([[0, 0, 1], [0, 1, 1]])
    assert translate(made.packed_sequence_mask_function(packed), Frame(3, 3)) == Documents(ids=packed)


def test_a_function_of_ones_own_stays_a_function():
    mask = translate(lambda b, h, q, k: q == k, Frame(3, 5, q_start=2))
    assert isinstance(mask, Where)
    assert torch.equal(mask.dense(3, 5)[0, 0], torch.eye(5, dtype=torch.bool)[2:])


def test_no_mask_is_ever_a_matrix_however_long_the_text():
    n = 1 << 20
    function = made.and_masks(
        made.sliding_window_causal_mask_function(4096),
        made.padding_mask_function(torch.ones(1, n, dtype=torch.bool)),
    )
    assert translate(function, Frame(n, n)) == Window(4096) & Causal()
