"""In which order a thread adds up its columns: another one would make other distances."""

from __future__ import annotations

import pytest

from engine.triton.scripts import printed_by

pytest.importorskip("triton.experimental.gluon")


def test_sums_of_sums_count_every_weight_by_its_distance():
    """A thread has 16 pairs of columns, eight apart, of two rows. No device is needed to read that from what
    the compiler makes of it; releases of Triton have taken other orders."""
    sums = printed_by("column_sums.py")
    # Of a pair the second column is nearer to the end of the tile by one.
    distances = sorted(8 * pair - second for pair in range(1, 17) for second in (0, 1))
    assert sorted(sums) == sorted([[1] * 32] * 2 + [distances] * 2)
