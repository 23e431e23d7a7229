"""Several ranks compute what one process computes: every mask, score, bias and option, and back."""

from __future__ import annotations

import pytest

from distributed.catalogue import MASKS, OPTIONS
from distributed.parity import LAYOUTS


@pytest.mark.share(3)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_gives_the_output_and_gradients_of_one_process(world, mask):
    for ranks, exchange, layout in (
        (2, "ring", "contiguous"),
        (3, "gather", "head tail"),
        (4, "ring", "head tail"),
    ):
        world.run("distributed.parity.attends", ranks, mask=mask, exchange=exchange, layout=layout)


@pytest.mark.parametrize("options", OPTIONS)
def test_every_score_and_bias_gives_the_output_and_gradients_of_one_process(world, options):
    for ranks, exchange, layout in (
        (2, "gather", "head tail"),
        (3, "ring", "head tail"),
        (2, "heads", "unequal"),
    ):
        if (options, exchange) != ("own bias", "heads"):
            world.run("distributed.parity.attends", ranks, options=options, exchange=exchange, layout=layout)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_every_layout_on_every_number_of_ranks(world, ranks, layout, exchange):
    world.run("distributed.parity.attends", ranks, options="sink", layout=layout, exchange=exchange)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("exchange", ["gather", "ring", "heads"])
def test_lower_precisions_agree_with_one_process(world, dtype, exchange):
    world.run("distributed.parity.attends", 2, dtype=dtype, exchange=exchange, options="sink")


@pytest.mark.parametrize("exchange", ["gather", "ring", "heads"])
def test_the_same_call_gives_the_same_bits_twice(world, exchange):
    world.run("distributed.parity.repeats", 2, exchange=exchange)


@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_inputs_in_any_memory_order_are_read_right(world, exchange):
    world.run("distributed.parity.attends_transposed", 3, exchange=exchange)


def test_queries_may_be_fewer_than_keys(world):
    for exchange in ("gather", "ring", "heads"):
        world.run("distributed.parity.attends_with_fewer_queries", 2, exchange=exchange)


def test_a_bias_may_have_the_rows_of_its_rank(world):
    world.run("distributed.parity.biased_by_own_rows", 3)


def test_dtensors_come_and_go(world):
    for ranks in (2, 3, 4):
        world.run("distributed.parity.attends_to_dtensors", ranks)


def test_a_dimension_of_a_mesh_is_a_group(world):
    world.run("distributed.parity.attends_on_a_mesh", 4)


def test_what_is_cut_is_put_together_again(world):
    for ranks in (1, 2, 3, 4):
        world.run("distributed.parity.cuts_and_joins", ranks)


def test_garbage_behind_the_mask_reaches_nothing(world):
    for exchange in ("gather", "ring"):
        world.run("distributed.parity.keeps_garbage_out", 3, exchange=exchange)


def test_keys_that_were_written_to_before_the_backward_pass_are_an_error(world):
    world.run("distributed.parity.refuses_stale_keys", 2)
