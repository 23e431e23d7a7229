"""A model whose weights are spread over two processes is recorded as it is alone."""

from __future__ import annotations

import pytest

MAKES = ["in_ddp", "in_fsdp", "layers_in_fsdp", "with_own_parameters", "sharded"]


@pytest.mark.parametrize("make", MAKES)
def test_a_model_in_data_parallel_is_recorded_on_each_rank_as_it_is_alone(world, make):
    world.run("distributed.wrapped.exact", 2, make=make)


def test_the_model_inside_fsdp_is_refused_and_what_to_give_is_named(world):
    first, second = world.run("distributed.wrapped.inner", 2)
    assert first == second
    assert "give what wraps the LlamaForCausalLM, or run the model once before" in first
