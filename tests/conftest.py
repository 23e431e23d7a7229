"""What every test can count on: one thread, one seed, and `gpu` tests only where there is a GPU."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

# Test tensors are tiny: a thread pool costs more than it gives, and slow CI machines would trip deadlines.
torch.set_num_threads(1)
# On CI every run draws the same examples, so that a change is judged by the change; elsewhere they are new.
settings.register_profile("regard", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("regard")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
