"""Where there is no GPU the kernels run in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.triton.interpreting import interpret


@pytest.fixture(autouse=True, scope="package")
def _kernels():
    """Interpreted while these tests run; the other tests must not think that there is a GPU."""
    if torch.cuda.is_available():
        yield
        return
    before = os.environ.get("TRITON_INTERPRET")
    interpret()
    yield
    if before is None:
        del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def _no_tapes():
    """Tests put other kernels in the place of those that earlier calls started."""
    from regard.engine.triton import replaying

    replaying.forget()
    yield
    replaying.forget()


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
