"""Tensors without numbers: shapes come out, and what needs numbers says so."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import AttentionMap, Causal, Padding, Window, attention, observe
from regard.errors import BackendError, DeviceError, ShapeError
from regard.scores import Additive

MASKS = [None, Causal(), Causal() & Window(3), Padding(torch.tensor([True] * 6 + [False]))]


def empty(*shape: int, **options) -> torch.Tensor:
    return torch.empty(*shape, device="meta", **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=repr)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_attention_on_the_meta_device_gives_the_shape_of_the_output(backend, mask, dtype):
    q, k, v = (empty(*shape, dtype=dtype) for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 3)))
    out = attention(q, k, v, mask, backend=backend)
    assert (out.shape, out.dtype, out.is_meta) == ((2, 4, 5, 3), dtype, True)


def test_options_and_other_ranks_work_on_the_meta_device():
    q, k, v = empty(5, 8), empty(7, 8), empty(7, 3)
    options = {"softcap": 3.0, "sink": empty(1), "bias": empty(5, 7), "score_mod": lambda s, *at: s}
    assert attention(q, k, v, **options).shape == (5, 3)
    score = Additive(empty(8, 6), empty(8, 6), empty(6))
    assert attention(q, k, v, score=score).shape == (5, 3)
    assert regard.sdpa(empty(2, 3, 5, 8), empty(2, 3, 7, 8), empty(2, 3, 7, 8), is_causal=True).shape == (
        2,
        3,
        5,
        8,
    )


def test_gradients_on_the_meta_device_have_shapes_too():
    names = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 3), "sink": (4,), "bias": (4, 5, 7)}
    leaves = {name: empty(*shape, requires_grad=True) for name, shape in names.items()}
    attention(**leaves).sum().backward()
    assert {name: tuple(x.grad.shape) for name, x in leaves.items()} == names


def test_inputs_on_the_meta_device_are_checked_like_others():
    with pytest.raises(ShapeError, match="k has length 7 and v has length 6"):
        attention(empty(1, 1, 5, 8), empty(1, 1, 7, 8), empty(1, 1, 6, 8))
    with pytest.raises(DeviceError, match="q is on meta, k is on cpu, v is on cpu"):
        attention(empty(1, 1, 5, 8), torch.zeros(1, 1, 7, 8), torch.zeros(1, 1, 7, 8))
    with pytest.raises(BackendError, match="backend='sdpa' cannot run this call"):
        attention(empty(1, 1, 5, 8), empty(1, 1, 7, 8), empty(1, 1, 7, 8), Window(2), backend="sdpa")


@pytest.mark.parametrize(
    "read",
    [lambda x: observe(x, x, x, Causal()), lambda x: AttentionMap.of(x, x)],
    ids=["observe", "AttentionMap.of"],
)
def test_a_map_of_tensors_without_numbers_is_refused(read):
    with pytest.raises(DeviceError) as caught:
        read(empty(1, 2, 5, 8))
    assert str(caught.value) == (
        "q is on the meta device, which holds no numbers, so its map has no cells to read. Give q, k and v "
        "on a real device; `attention` works on meta tensors, and returns the shape of the output."
    )
