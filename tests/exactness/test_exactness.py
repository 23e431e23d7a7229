"""docs/exactness.md is made of what was measured, and what it promises holds for a small case here."""

from __future__ import annotations

import pytest
import torch

import regard.stats
from benchmarks.families import FAMILIES, inputs
from exactness.measure import COUNTS, Cell, Size, measure, statistics
from exactness.page import PAGE, page, read
from regard.stats import Statistic


def test_the_page_is_made_of_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == page(read()), "run: python -m exactness --only-page"


def test_every_statistic_is_measured_or_said_to_be_left_out():
    kinds = {name for name in regard.stats.__all__ if isinstance(getattr(regard.stats, name), type)}
    kinds = {name for name in kinds if issubclass(getattr(regard.stats, name), Statistic)}
    measured = {type(one).__name__ for one in statistics(Size())}
    assert kinds - measured == {*COUNTS, "Statistic", "ColumnStatistic", "Custom"}
    assert all(f"`{name}`" in PAGE.read_text(encoding="utf-8") for name in (*COUNTS, "Custom"))


@pytest.mark.parametrize("family", ["random", "sink 10", "near-duplicate keys"])
def test_what_is_promised_holds_in_float32(family):
    cells = measure("cpu", ["float32"], [family], Size(heads=2, n=33, dim=16))
    assert len({cell.quantity for cell in cells}) >= 18
    assert [cell for cell in cells if cell.error > cell.promised] == []


def test_only_gpu_kernels_may_lose_digits_to_large_scores():
    cpu, gpu = (
        Cell("float32", "sink_mass", name, 8e-5, 0.0, "large logits", 1500.0) for name in ("torch", "triton")
    )
    assert cpu.promised == 1e-5
    assert cpu.share > 1 > gpu.share
    assert gpu.promised == pytest.approx(1e-5 + 1500 * 2**-23)
    small = Cell("float32", "gradient of k", "triton", 4.8e-5, 0.0, "random", 0.0)
    assert small.promised == 5e-5


def test_a_broken_promise_is_bold_and_listed():
    fine = Cell("float32", "entropy", "torch", 1e-7, 1e-7, "random", 3.0)
    broken = Cell("float32", "output", "torch", 1e-3, 1e-7, "outliers", 9.0)
    about = {"machine": "CPU", "date": "", "commit": "", "command": ""}
    said = page({"cpu": {**about, "cells": [vars(fine), vars(broken)]}})
    assert "- output, float32, torch: 1.0e-03, eager 1.0e-07 (outliers)" in said
    assert "| output | **1.0e-3 / 1.0e-7** |" in said
    assert "| entropy | 1.0e-7 / 1.0e-7 |" in said


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_family_is_finite_and_the_same_every_time(name, dtype):
    first, second = (inputs(name, (1, 3, 65, 16), dtype, seed=5) for _ in range(2))
    assert all(x.dtype == dtype and x.shape == (1, 3, 65, 16) for x in first)
    assert all(torch.equal(a, b) and bool(a.isfinite().all()) for a, b in zip(first, second, strict=True))


def scores(name: str, n: int = 257, dim: int = 64) -> torch.Tensor:
    q, k, _ = inputs(name, (1, 2, n, dim), torch.float64)
    return q @ k.mT * dim**-0.5


@pytest.mark.parametrize("m", [5, 10, 20, 40])
def test_a_sink_draws_the_score_it_is_named_after(m):
    assert scores(f"sink {m}")[..., 0].mean().item() == pytest.approx(m, abs=1)


def test_locality_falls_with_the_distance():
    s = scores("rotary locality")
    near, far = s.diagonal(0, -2, -1).mean(), s.diagonal(-100, -2, -1).mean()
    assert near - far > 2


def test_near_duplicate_keys_differ_by_one_bit_at_most():
    _, k, _ = inputs("near-duplicate keys", (1, 1, 65, 16), torch.bfloat16)
    bits = k.view(torch.int16).int()
    assert (bits.amax(-2) - bits.amin(-2)).unique().tolist() == [2]


def test_a_leap_is_180_bits():
    assert scores("leap, middle key")[..., 128].mean().item() == pytest.approx(180 * 0.6931, rel=0.05)


def test_the_second_half_of_an_induction_repeats_the_first():
    for x in inputs("induction", (1, 1, 65, 8)):
        assert torch.equal(x[..., 33:, :], x[..., :32, :])
