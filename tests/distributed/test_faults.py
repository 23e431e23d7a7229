"""What is wrong on one rank is the same clear error on all, and nothing hangs."""

from __future__ import annotations

import pytest

from processes import python


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("mask", "ranks disagree on the mask of attention: rank 0 has Causal() #"),
        ("mask content", "rank 0 has Documents(lengths=(2, 59)) #"),
        ("dtype", "ranks disagree on the dtype of attention: rank 0 has torch.float64, rank 2 has"),
        ("mixed dtypes", "attention was refused. rank 2: q is torch.float64, k is torch.float32"),
        ("heads", "ranks disagree on the shapes (batch, heads, dim) of q, k and v of attention: rank 0 has"),
        ("length", "the ranks hold 21, 20, 19 positions of q"),
        ("scale", "ranks disagree on the scale of attention: rank 0 has 0.35"),
        ("sharding", "ranks disagree on the sharding of attention: rank 0 has (Sharding(rank 0: 0-21;"),
        ("gradient", "ranks disagree on the gradients of attention: rank 0 has [false, false, false]"),
        ("call", "ranks disagree on the call: rank 0 has attention, rank 2 has unshard."),
    ],
)
def test_a_rank_that_differs_is_the_same_error_on_all(world, what, said):
    answers = world.run("distributed.faults.differs", 3, what=what)
    assert set(answers) == {answers[0]}
    assert said in answers[0]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no lengths", "shards of unequal length need sharding=Sharding.of_lengths([31, 30])"),
        ("short", "a sequence shorter than the number of ranks, 2, cannot be cut"),
        ("exchange", "exchange='pigeon' is unknown; there are 'auto', 'gather', 'heads', 'ring'."),
        ("heads", "exchange='heads' cannot be used: k has 1 heads, and each of 2 ranks needs one."),
        ("bool", "mask is a torch.bool tensor"),
        ("bias", "with all 61 keys, and with all 61 queries or, on every rank, those of the rank"),
        ("other mask", "3 positions"),
    ],
)
def test_what_all_ranks_get_wrong_is_said_in_a_sentence(world, what, said):
    for text in world.run("distributed.faults.refused", 2, what=what):
        assert said in text


def test_a_rank_that_does_not_come_is_named(world):
    for rank, text in enumerate(world.run("distributed.faults.missing", 3, late=1)):
        assert rank == 1 or text.startswith("rank 1 did not call attention within 5 s")
    # The one that was late leaves a note of its own, so that counting goes on together.
    world.run("distributed.faults.catches_up", 3, late=1)


def test_a_rank_that_leaves_the_backward_pass_out_is_an_error_for_those_who_wait(world):
    answers = world.run("distributed.faults.forgets_to_go_back", 2)
    assert answers[0].startswith("rank 1 did not call the backward pass of attention within 5 s")
    world.run("distributed.faults.catches_up", 2, late=1)


def test_without_a_process_group_the_error_says_how_to_start():
    script = "import torch, regard; x = torch.zeros(1, 1, 3, 2); regard.distributed.attention(x, x, x)"
    done = python("-c", script)
    assert done.returncode == 1
    assert "there is no process group. Start the program with `torchrun --nproc-per-node=2" in done.stderr
