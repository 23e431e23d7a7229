"""Each mask says what its sentence says: compared with that sentence, written as plain loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

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

Rule = Callable[[int, int], bool]

LENGTHS = [(1, 1), (5, 5), (1, 7), (4, 9), (9, 4), (63, 65), (65, 63), (65, 65)]

SENTENCES: list[tuple[Mask, Rule]] = [
    (Causal(), lambda q, k: k <= q),
    (Causal(shift=2), lambda q, k: k <= q + 2),
    (Causal(shift=-3), lambda q, k: k <= q - 3),
    (Window(1), lambda q, k: q == k),
    (Window(4), lambda q, k: abs(q - k) <= 3),
    (Window(4, 2), lambda q, k: q - 3 <= k <= q + 1),
    (Causal() & Window(3), lambda q, k: k in (q - 2, q - 1, q)),
    (Chunk(1), lambda q, k: q == k),
    (Chunk(4), lambda q, k: q // 4 == k // 4),
    (Chunk(4, reach=2), lambda q, k: q // 4 - k // 4 in (-2, -1, 0, 1, 2)),
    (Prefix(0), lambda q, k: False),
    (Prefix(3), lambda q, k: k in (0, 1, 2)),
    (Causal() | Prefix(3), lambda q, k: k <= q or k < 3),
    (Global(0), lambda q, k: False),
    (Global(2), lambda q, k: q in (0, 1) or k in (0, 1)),
    (Global((1, 6)), lambda q, k: q in (1, 6) or k in (1, 6)),
    (Strided(1), lambda q, k: True),
    (Strided(4), lambda q, k: abs(q - k) in range(0, 200, 4)),
    (~Causal(), lambda q, k: k > q),
    (StreamingSinks(sinks=2, window=3), lambda q, k: k <= q and (k < 2 or k > q - 3)),
    (Longformer(window=4, global_tokens=(3,)), lambda q, k: abs(q - k) <= 2 or q == 3 or k == 3),
    (Longformer(window=5, global_tokens=0), lambda q, k: abs(q - k) <= 2),
    (
        BigBird(3, 65, window_blocks=3, random_blocks=0, global_blocks=1),
        lambda q, k: abs(q // 3 - k // 3) <= 1 or q in (0, 1, 2) or k in (0, 1, 2),
    ),
    (Where(lambda b, h, q_idx, kv_idx: q_idx + kv_idx < 6), lambda q, k: q + k < 6),
    (Where(lambda b, h, q_idx, kv_idx: q_idx + kv_idx < 6, origin=2), lambda q, k: q - 2 + k < 6),
]


def spelled_out(rule: Rule, q: int, k: int) -> list[list[bool]]:
    """The matrix of a rule about positions, pair by pair; the last query sits on the last key."""
    return [[rule(i + k - q, j) for j in range(k)] for i in range(q)]


@pytest.mark.parametrize(("q", "k"), LENGTHS)
@pytest.mark.parametrize(("mask", "rule"), SENTENCES, ids=lambda x: repr(x) if isinstance(x, Mask) else "")
def test_mask_means_its_sentence(mask: Mask, rule: Rule, q: int, k: int) -> None:
    assert mask.dense(q, k).view(q, k).tolist() == spelled_out(rule, q, k)


@pytest.mark.parametrize(("q", "k"), [(1, 7), (4, 7), (7, 7)])
def test_documents_by_length_mean_same_document(q: int, k: int) -> None:
    documents = ["a", "a", "a", "b", "c", "c", "c"]
    matrix = Documents(lengths=[3, 1, 0, 3]).dense(q, k)
    assert matrix.tolist() == spelled_out(lambda i, j: documents[i] == documents[j], q, k)


@pytest.mark.parametrize("q", [1, 4, 6])
def test_documents_by_id_mean_same_document_and_padding_means_nothing(q: int) -> None:
    rows = [[5, 5, 2, 5, -1, 2], [0, -1, -1, 0, 3, 3]]
    matrix = Documents(ids=torch.tensor(rows)).dense(q, 6)
    for row, found in zip(rows, matrix, strict=True):

        def together(i: int, j: int, row: list[int] = row) -> bool:
            return row[i] == row[j] and row[i] >= 0

        assert found[0].tolist() == spelled_out(together, q, 6)


@pytest.mark.parametrize("q", [1, 4, 9])
def test_padding_hides_invalid_keys_from_every_query(q: int) -> None:
    rows = [[True, True, False, True], [False, False, False, False]]
    matrix = Padding(torch.tensor(rows)).dense(q, 4)
    assert matrix.shape == (2, 1, q, 4)
    for row, found in zip(rows, matrix, strict=True):
        assert found[0].tolist() == [row] * q


@pytest.mark.parametrize(("q", "k"), LENGTHS)
def test_dense_is_its_tensor(q: int, k: int) -> None:
    flags = torch.rand(2, 3, q, k) < 0.5
    assert torch.equal(Dense(flags).dense(q, k), flags)
    assert torch.equal(Dense(flags[0, 0]).dense(q, k), flags[0, 0])


def test_top_left_causal_is_a_shift_by_the_difference_of_lengths() -> None:
    for q, k in LENGTHS:
        top_left = torch.ones(q, k, dtype=torch.bool).tril()
        assert torch.equal(Causal(shift=q - k).dense(q, k), top_left)


def test_causal_window_is_exactly_that_many_keys() -> None:
    assert (Causal() & Window(7)).dense(65).sum(-1).tolist() == [1, 2, 3, 4, 5, 6] + [7] * 59


def test_right_side_of_a_window_is_its_left_side_unless_given() -> None:
    assert Window(3).right == 3
    assert Window(3) == Window(3, 3) != Window(3, 2)


@pytest.mark.parametrize(
    ("block", "per_row", "length"), [(1, 1, 1), (1, 3, 65), (4, 2, 63), (7, 5, 65), (64, 2, 65)]
)
def test_random_blocks_gives_each_query_block_that_many_whole_key_blocks(
    block: int, per_row: int, length: int
) -> None:
    matrix = RandomBlocks(block, per_row, length, seed=3).dense(length)
    corners = matrix[::block, ::block]
    assert corners.sum(1).tolist() == [per_row] * len(corners)
    whole = corners.repeat_interleave(block, 0).repeat_interleave(block, 1)
    assert torch.equal(matrix, whole[:length, :length])


def test_random_blocks_are_the_same_on_every_machine() -> None:
    table = [row.nonzero().flatten().tolist() for row in RandomBlocks(1, 2, 8, seed=7).dense(8)]
    assert table == [[4, 5], [1, 6], [6, 7], [1, 7], [0, 1], [1, 4], [6, 7], [1, 2]]


def test_random_blocks_vary_with_the_seed() -> None:
    assert not torch.equal(RandomBlocks(1, 2, 65, seed=0).dense(65), RandomBlocks(1, 2, 65, seed=1).dense(65))


def test_random_blocks_of_a_shorter_call_are_a_corner_of_the_same_table() -> None:
    mask = RandomBlocks(4, 3, length=65)
    assert torch.equal(mask.dense(33), mask.dense(65)[:33, :33])


def test_random_blocks_show_nothing_to_positions_before_the_first_key() -> None:
    matrix = RandomBlocks(2, 2, length=4).dense(9, 4)
    assert not matrix[:5].any()
    assert matrix[5:].all()


def test_a_longformer_window_of_one_key_is_the_querys_own():
    assert torch.equal(Longformer(window=1, global_tokens=0).dense(3), torch.eye(3, dtype=torch.bool))
