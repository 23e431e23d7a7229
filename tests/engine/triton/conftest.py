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

    from regard.engine.triton.replay import calls

    calls.forget()
    yield
    calls.forget()


@pytest.fixture
def _dirty_sums(monkeypatch):
    """Memory for sums is full of garbage until it is cleared or written."""
    from regard.engine.lazy_zeros import LazyZeros

    make = LazyZeros.__call__

    def dirty(self, shape, **options):
        made = make(self, shape, **options)
        return made.fill_(torch.nan if made.is_floating_point() else -(2**40))

    monkeypatch.setattr(LazyZeros, "__call__", dirty)


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
