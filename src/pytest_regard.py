"""The pytest plugin: a fixture `assert_attention` for every test suite where regard is installed.

It is no part of the package: every run of pytest loads it, and nothing of regard before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["assert_attention"]


@pytest.fixture(name="assert_attention")
def assert_attention() -> Callable[..., Any]:
    """A test that takes `assert_attention` may say `assert_attention(my_attention, causal=True)`."""
    from regard.doctor.examination import examine

    def check(attention: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        found = examine(attention, **options)
        if not found.healthy:
            pytest.fail(str(found), pytrace=False)
        return found

    return check
