"""A rank that is lost in the middle of an exchange is an error for the other."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest
import torch.distributed

from distributed import lost
from processes import forked
from regard.distributed.ranks import Ranks
from regard.errors import DistributedError


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_a_rank_that_is_lost_while_exchanging_is_an_error_for_the_other(tmp_path, how):
    here, there = Pipe()
    more = (how, str(tmp_path / "meeting"), there)
    with here, forked(lost.main, 0, *more), forked(lost.main, 1, *more):
        # So that a rank that ends without a word is an error here, and not an endless wait.
        there.close()
        said = here.recv_bytes().decode()
    assert said.startswith("rank 0 lost another rank while exchanging tensors")


def test_a_rank_that_is_gone_when_an_exchange_begins_is_the_same_error(monkeypatch):
    def refuse(_):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "batch_isend_irecv", refuse)
    monkeypatch.setattr(Ranks, "_op", lambda *_: None)
    ranks = Ranks(torch.distributed.group.WORLD, 0, 2, 2.0, torch.device("cpu"), staged=False)
    with pytest.raises(DistributedError, match=r"^rank 0 lost another rank .*: Connection closed by peer$"):
        ranks.swap({1: torch.ones(1)}, {})
