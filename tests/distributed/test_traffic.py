"""What is sent is what the formulas say, and nothing that no query needs."""

from __future__ import annotations

import pytest

from distributed.catalogue import BATCH, DIM, HEADS, KV_HEADS, LENGTH
from distributed.parity import LAYOUTS

PER_KEY = BATCH * KV_HEADS * (DIM + DIM + 2)


@pytest.mark.parametrize("exchange", ["gather", "ring", "heads"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", ["none", "causal", "window", "documents", "dense"])
def test_bytes_sent_are_those_of_the_plan(world, mask, layout, exchange):
    for forward, backward, planned, planned_back in world.run(
        "distributed.parity.sends", 2, mask=mask, layout=layout, exchange=exchange
    ):
        assert (forward, backward) == (planned, planned_back)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_under_a_causal_mask_a_rank_sends_its_keys_to_those_after_it(world, ranks, exchange):
    sizes = LAYOUTS["contiguous"](LENGTH, ranks).sizes
    said = world.run("distributed.parity.sends", ranks, mask="causal", layout="contiguous", exchange=exchange)
    for rank, (forward, backward, *_) in enumerate(said):
        sent, received = sizes[rank] * (ranks - 1 - rank), sum(sizes[:rank])
        assert forward == 4 * PER_KEY * sent
        assert backward == 4 * PER_KEY * (sent + received)


def test_a_window_sends_the_keys_at_the_edge_alone(world):
    # Window(9): the 8 keys on either side of the border between two ranks.
    said = world.run("distributed.parity.sends", 2, mask="window", layout="contiguous", exchange="ring")
    assert [forward for forward, *_ in said] == [4 * PER_KEY * 8] * 2


def test_whole_documents_on_a_rank_send_nothing(world):
    said = world.run("distributed.parity.sends", 2, mask="documents", layout="head tail", exchange="ring")
    assert sum(forward for forward, *_ in said) > 0
    from regard.distributed import Sharding
    from regard.distributed.needs import Needs
    from regard.masks import Causal, Documents

    lengths = [7, 20, 5, 29]
    held = Sharding.by_document(lengths, 3)
    needs = Needs(Causal() & Documents(lengths=lengths), held, held)
    assert [needs.sent(rank) for rank in range(3)] == [0, 0, 0]


def test_dealing_out_heads_moves_every_input_once(world):
    said = world.run("distributed.parity.sends", 2, mask="none", layout="contiguous", exchange="heads")
    sizes = LAYOUTS["contiguous"](LENGTH, 2).sizes
    for rank, (forward, backward, *_) in enumerate(said):
        own, other = sizes[rank], sizes[1 - rank]
        inputs = own * (HEADS // 2 * DIM + KV_HEADS // 2 * (2 * DIM + 2))
        outputs = other * HEADS // 2 * (DIM + 2)
        assert forward == 4 * BATCH * (inputs + outputs)
        grads = other * (HEADS // 2 * DIM + KV_HEADS // 2 * (2 * DIM + 2))
        assert backward == 4 * BATCH * (grads + own * HEADS // 2 * (DIM + 2))
