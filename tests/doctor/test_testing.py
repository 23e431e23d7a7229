"""`assert_attention` for other people's tests, the plugin, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.nn import functional as F

from regard.doctor import mistakes
from regard.doctor.page import page
from regard.testing import assert_attention

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def unscaled(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def test_a_healthy_attention_passes():
    assert assert_attention(F.scaled_dot_product_attention).healthy


def test_a_broken_attention_fails_with_the_findings():
    with pytest.raises(AssertionError, match=r"The scores are not divided by √d_k  \[missing-scale\]"):
        assert_attention(unscaled)


def test_options_reach_the_doctor():
    with pytest.raises(AssertionError, match="causal-leak"):
        assert_attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), causal=True)


def test_the_plugins_fixture_passes_and_fails_likewise(assert_attention):
    check = assert_attention
    assert check(F.scaled_dot_product_attention).healthy
    with pytest.raises(pytest.fail.Exception, match="missing-scale"):
        check(unscaled)


def test_the_page_is_made_from_the_catalogue():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_names_every_mistake():
    assert all(f"`{code}`" in page() for code in mistakes())
