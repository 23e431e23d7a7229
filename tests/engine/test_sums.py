"""Sums and matrix products that round the same way every time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.harness import threads, where_products_are_steady
from regard.engine.gemm import ALIGNMENT, aligned, bmm
from regard.engine.sums import add_exp, over_rows

HEIGHTS = [1, 2, 3, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 448, 513, 514]


def factors(n, m, c, w, layout="rows", dtype=torch.float32):
    torch.manual_seed(0)
    a, b = torch.randn(n, m, c, dtype=dtype), torch.randn(n, c, w, dtype=dtype)
    if layout == "columns":
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    return a, b


def test_aligned_copies_only_what_is_not():
    x = torch.randn(40)
    assert aligned(x) is x
    assert aligned(x[1:]).data_ptr() % ALIGNMENT == 0
    assert torch.equal(aligned(x[1:]), x[1:])


@pytest.mark.parametrize("m", HEIGHTS)
@pytest.mark.parametrize("n", [1, 3])
def test_a_product_is_the_product(n, m):
    a, b = factors(n, m, 17, 33, dtype=torch.float64)
    start = torch.randn(n, m, 33, dtype=torch.float64)
    torch.testing.assert_close(bmm(a, b), a @ b)
    out = start.clone()
    assert bmm(a, b, out) is out
    torch.testing.assert_close(out, a @ b)
    out = start.clone()
    assert bmm(a, b, out, add=True) is out
    torch.testing.assert_close(out, start + a @ b)


@pytest.mark.parametrize("m", [1, 33, 64, 129])
def test_a_lone_product_is_differentiable(m):
    a, b = (x.requires_grad_() for x in factors(1, m, 3, 5, dtype=torch.float64))
    assert torch.autograd.gradcheck(bmm, (a, b))


@pytest.mark.share(4)
@where_products_are_steady
@pytest.mark.parametrize("m", HEIGHTS)
@pytest.mark.parametrize("sizes", [(64, 128), (128, 17), (5, 1), (1, 24), (25, 1)], ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_alone_has_the_bits_it_has_in_a_batch(m, sizes, layout, dtype):
    a, b = factors(3, m, *sizes, layout=layout, dtype=dtype)
    out = torch.randn(3, m, sizes[1], dtype=dtype)
    for i in range(3):
        one = slice(i, i + 1)
        assert torch.equal(bmm(a[one], b[one]), bmm(a, b)[one])
        assert torch.equal(bmm(a[one], b[one], out[one].clone(), True), bmm(a, b, out.clone(), True)[one])


@where_products_are_steady
@pytest.mark.parametrize("m", HEIGHTS)
def test_a_product_alone_has_the_same_bits_for_any_number_of_threads(m):
    a, b = factors(1, m, 64, 1024)
    one = bmm(a, b)
    for count in (2, 3):
        with threads(count):
            assert torch.equal(bmm(a, b), one)


@given(a=st.floats(-200, 200) | st.just(-math.inf), b=st.floats(-200, 200) | st.just(-math.inf))
def test_log_sum_exps_add_up(a, b):
    a, b = torch.tensor([a, b], dtype=torch.float64)
    torch.testing.assert_close(add_exp(a, b), torch.logaddexp(a, b))
    assert add_exp(a, b) == add_exp(b, a)


def test_infinite_and_undefined_log_sum_exps_stay_what_they_are():
    inf, nan = torch.tensor(math.inf), torch.tensor(math.nan)
    assert add_exp(inf, inf) == inf
    assert add_exp(inf, -inf) == inf
    assert add_exp(-inf, -inf) == -inf
    assert add_exp(nan, -inf).isnan()


def test_the_layout_does_not_change_a_bit_of_a_log_sum_exp():
    a, b = torch.randn(2, 300, 4).unbind()
    packed = add_exp(a[:, 0].contiguous(), b[:, 0].contiguous())
    assert torch.equal(add_exp(a[:, 0], b[:, 0]), packed)


@pytest.mark.parametrize("rows", [0, 1, 65, 16384, 16385, 100_000])
def test_a_sum_over_rows_is_the_same_for_any_number_of_threads(rows):
    x = torch.randn(2, 1, rows)
    one = over_rows(x)
    torch.testing.assert_close(one, x.double().sum((0, 2)).float())
    for count in (2, 3):
        with threads(count):
            assert torch.equal(over_rows(x), one)
