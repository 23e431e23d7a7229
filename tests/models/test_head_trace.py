"""The steps around one head of models that are built in other ways than the bundled one."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from regard.models import record
from regard.models.head_trace import head_trace

SIZES = {"vocab_size": 65, "num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 24}


def traced(model, layer: int, head: int):
    ids = torch.arange(1, 8)[None]
    return head_trace(model, ids, record(model, ids), layer, head, [str(i) for i in range(7)])


def test_a_fused_projection_with_biases_and_without_rotation_is_found():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=24, n_head=2, n_layer=2, vocab_size=65, n_positions=16)).eval()
    for part in model.modules():
        if getattr(part, "bias", None) is not None:
            torch.nn.init.normal_(part.bias)
    steps = traced(model, 1, 1)
    assert steps["q"].formula == "q = input W_q + b_q"
    assert "q projected" not in steps
    made = steps.input @ steps.recipe.matrices["w_q"] + steps.recipe.matrices["b_q"]
    torch.testing.assert_close(made.float(), steps.q, atol=1e-4, rtol=1e-4)
    assert steps.names[-1] == "projected"


def test_queries_keys_and_values_of_one_head_side_by_side_are_found_and_so_is_a_rotation_of_a_part():
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(**SIZES, intermediate_size=48, max_position_embeddings=16)
    ).eval()
    steps = traced(model, 0, 1)
    assert steps.names[:3] == ["input", "q projected", "k projected"]
    torch.testing.assert_close(steps["q projected"].value.norm(dim=-1).float(), steps.q.norm(dim=-1))


@pytest.mark.parametrize("head", [0, 1])
def test_a_head_whose_queries_are_normalised_keeps_the_steps_that_are_found(head):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=12, intermediate_size=48)
    steps = traced(Qwen3ForCausalLM(config).eval(), 1, head)
    assert steps["v"].formula == "v = input W_v"
    assert steps.names[-2:] == ["heads concatenated", "projected"]
    assert str(steps)
