"""A rank that is lost in the middle of an exchange is an error for the other."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest

from distributed import lost
from processes import forked


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_a_rank_that_is_lost_while_exchanging_is_an_error_for_the_other(tmp_path, how):
    here, there = Pipe()
    more = (how, str(tmp_path / "meeting"), there)
    with here, there, forked(lost.main, 0, *more), forked(lost.main, 1, *more):
        said = here.recv_bytes().decode()
    assert said.startswith("rank 0 lost another rank while exchanging tensors")
