"""What the tests of statistics can ask for."""

from __future__ import annotations

import jaxtyping
import pytest


@pytest.fixture
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are checked in the tests only: with this, the statistics themselves must notice."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
