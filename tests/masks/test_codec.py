"""Masks come back from JSON as they went in."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import MaskError
from regard.masks import Causal, Dense, Documents, Global, Mask, Padding, Prefix, Where, Window
from strategies import lengths, masks


def no_function(mask: Mask) -> bool:
    return "Where" not in repr(mask)


@given(data=st.data(), q=lengths(), k=lengths(), batch=st.integers(1, 2), heads=st.integers(1, 2))
def test_json_round_trip_gives_an_equal_mask(
    data: st.DataObject, q: int, k: int, batch: int, heads: int
) -> None:
    mask = data.draw(masks(q, k, batch, heads).filter(no_function))
    read = Mask.from_json(json.loads(json.dumps(mask.to_json())))
    assert read == mask
    assert repr(read) == repr(mask)
    assert torch.equal(read.dense(q, k), mask.dense(q, k))


def test_json_form_is_fixed() -> None:
    assert (Causal() & ~(Window(4) | Prefix(2))).to_json() == {
        "type": "And",
        "parts": [
            {"type": "Causal", "shift": 0},
            {
                "type": "Not",
                "parts": [
                    {
                        "type": "Or",
                        "parts": [{"type": "Window", "left": 4, "right": 4}, {"type": "Prefix", "n": 2}],
                    }
                ],
            },
        ],
    }
    assert Global((3, 1)).to_json() == {"type": "Global", "tokens": [1, 3]}
    flags = torch.tensor([[True, False, True], [False, False, True], [True, True, True]])
    assert Padding(flags[0]).to_json() == {"type": "Padding", "valid": {"shape": [3], "bits": "oA=="}}
    assert Dense(flags).to_json() == {"type": "Dense", "allowed": {"shape": [3, 3], "bits": "p4A="}}


def test_documents_are_written_as_lengths_or_runs() -> None:
    assert Documents(lengths=[2, 3]).to_json() == {"type": "Documents", "lengths": [2, 3]}
    assert Documents(ids=torch.tensor([[7, 7, -1], [-1, -1, 2]])).to_json() == {
        "type": "Documents",
        "ids": {"shape": [2, 3], "values": [7, -1, 2], "counts": [2, 3, 1]},
    }


def test_a_function_has_no_json_form() -> None:
    def rule(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return q_idx > kv_idx

    message = (
        "Where(rule) has no JSON form: only regard's own shapes can be written down. "
        "Write its matrix instead: Dense(mask.dense(q, k))."
    )
    with pytest.raises(MaskError, match=re.escape(message)):
        (Causal() & Where(rule)).to_json()
    matrix = Dense(Where(rule).dense(5))
    assert Mask.from_json(matrix.to_json()) == matrix


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"shift": 0}, "{'shift': 0} is not a mask; wanted a dict with a \"type\", as Mask.to_json writes."),
        (
            {"type": "Diagonal"},
            "no mask is called 'Diagonal'; known are And, Causal, Chunk, Dense, Documents,",
        ),
        ({"type": "Window", "width": 3}, "Window cannot be read from {'width': 3}: TypeError("),
        ({"type": "And"}, "And cannot be read from {}: KeyError('parts')."),
        ({"type": "Window", "left": 0}, "Window got left=0; it must be at least 1."),
        ({"type": "Padding", "valid": {"shape": [3], "bits": "?"}}, "Padding cannot be read from"),
        (
            {"type": "Padding", "valid": {"shape": [30], "bits": "oA=="}},
            "a tensor of shape [30] holds 30 values and 8 were written.",
        ),
        (
            {"type": "Documents", "ids": {"shape": [3], "values": [1], "counts": [2]}},
            "a tensor of shape [3] holds 3 values and 2 were written.",
        ),
    ],
)
def test_json_that_is_no_mask_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(MaskError, match=re.escape(message)):
        Mask.from_json(data)
