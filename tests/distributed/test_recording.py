"""A model on many processes writes one recording."""

from __future__ import annotations

import pytest
import torch

import regard
from distributed import recordings
from regard.errors import DistributedError


@pytest.mark.parametrize(
    ("make", "lengths"),
    [("model", [23]), ("model", [9, 14]), ("model", [8, 1, 14]), ("windowed", [12, 11])],
    ids=str,
)
def test_a_sequence_cut_over_ranks_is_one_recording(world, tmp_path, make, lengths):
    world.run(
        "distributed.recordings.sequence", len(lengths), folder=str(tmp_path), make=make, lengths=lengths
    )


@pytest.mark.filterwarnings("ignore")
def test_the_heads_of_a_tensor_parallel_model_are_one_recording(world, tmp_path):
    world.run("distributed.recordings.heads", 4, folder=str(tmp_path))


def test_what_cannot_be_cut_is_refused_on_all_ranks_alike(world, tmp_path):
    first, second = world.run("distributed.recordings.refusals", 2, folder=str(tmp_path))
    assert first == second
    stored, padded, biased = first
    assert "give store=, and open it with Recording.open afterwards" in stored
    assert "rank 0: attention_mask= speaks of one rank's tokens" in padded
    assert "cannot be cut along the sequence" in biased


def test_where_one_rank_fails_all_raise_and_nothing_opens(world, tmp_path):
    first, second = world.run("distributed.recordings.one_fails", 2, folder=str(tmp_path))
    assert (
        "rank 1 failed while it recorded, so there is no recording: RegardError('the disk is full')" in first
    )
    assert "the disk is full" in second
    assert all("holds parts of a recording and no parts.json" in said for said in (first, second))


def test_a_mesh_without_a_process_group_is_told_how_to_start():
    model = recordings.model()
    with (
        pytest.raises(DistributedError, match="start the program with torchrun"),
        torch.no_grad(),
        regard.watch(model, mesh=object(), store="never.regard"),
    ):
        pass
