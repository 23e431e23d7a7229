"""Assertions for users' own test suites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.doctor import Diagnosis, examine

__all__ = ["assert_attention"]


def assert_attention(attention: Callable[..., Any] | torch.nn.Module, **options: Any) -> Diagnosis:
    """Fail the test with the doctor's findings, if any; the options are those of `regard.doctor.examine`.

    >>> assert_attention(torch.nn.functional.scaled_dot_product_attention).healthy
    True
    """
    __tracebackhide__ = True
    found = examine(attention, **options)
    if not found.healthy:
        raise AssertionError(str(found))
    return found
