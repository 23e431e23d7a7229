"""Counted shapes against real modules: their parameters, and the FLOPs PyTorch counts in a forward pass."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cost.tiny import TINY, build, forward
from regard.cost import cache_bytes, decode, from_config, parameters, prefill
from regard.cost.config import by_formula
from regard.cost.families import FAMILIES
from regard.cost.fields import read_fields
from regard.cost.known import model_class_of
from regard.cost.measured import measured_shape
from regard.cost.probe import probe
from regard.errors import NotCountedError

LENGTH, TARGET, BATCH = 17, 11, 2
# What only a formula counts.
NOT_RUN = {"t5": "has an encoder and a decoder", "llama4_text": "which keys the queries of llama4_text see"}


@pytest.fixture(params=TINY, scope="module")
def model(request):
    return build(request.param)


def formula_of(config):
    return by_formula(read_fields(config)[0])


def test_parameters_are_those_of_the_module(model):
    assert parameters(formula_of(model.config)).total == sum(p.numel() for p in model.parameters())


@pytest.mark.share(3)
def test_a_formula_and_the_model_run_without_weights_count_the_same(model):
    formula, kind = formula_of(model.config), model.config.model_type
    if kind in ("t5", "llama4_text"):
        with pytest.raises(NotCountedError, match=NOT_RUN[kind]):
            measured_shape(probe(model.config, model_class_of(model.config)), kind)
        return
    measured = measured_shape(probe(model.config, type(model)), formula.name)
    assert parameters(measured).total == parameters(formula).total
    assert measured.kinds == formula.kinds
    assert parameters(measured).active == parameters(formula).active
    for context in (1, 7, 65):
        assert cache_bytes(measured, context) == cache_bytes(formula, context)
        assert prefill(measured, context).flops_by_part == prefill(formula, context).flops_by_part


def test_flops_are_those_pytorch_counts(model):
    with FlopCounterMode(display=False) as counter:
        forward(model, LENGTH, TARGET, BATCH)
    shape = formula_of(model.config)
    ours = prefill(shape, LENGTH, target=TARGET, batch=BATCH, logits="all", dense=True).flops
    assert counter.get_total_flops() - angles_in(counter) == ours + idle_experts(shape)


def angles_in(counter: FlopCounterMode) -> int:
    """The table of rotary angles is an outer product, which the counter takes for a matrix product."""
    counts = counter.get_flop_counts()
    return sum(
        sum(by_operator.values()) for name, by_operator in counts.items() if name.endswith("rotary_emb")
    )


def idle_experts(shape) -> int:
    """Llama 4 in transformers runs every expert on every token and throws away all but the chosen."""
    if shape.name != "llama4_text":
        return 0
    feeds = [layer.ffn for layer in shape.layers if layer.ffn.experts]
    extra = sum(f.weights(shape.d_model, f.experts) - f.weights(shape.d_model, f.active) for f in feeds)
    return 2 * extra * LENGTH * BATCH


def test_every_family_is_compared_with_its_module():
    kinds = {name.split(" ")[0] for name in TINY}
    # The same classes under another name.
    assert set(FAMILIES) - kinds == {"ministral"}


def test_a_wrong_size_would_show():
    model = build("llama")
    changed = {**model.config.to_dict(), "vocab_size": 152}
    assert parameters(from_config(changed)).total != sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "mixtral"])
def test_a_decoding_step_has_the_flops_pytorch_counts(name):
    model = build(name)
    tokens = torch.arange(LENGTH)[None] + 3
    with torch.no_grad():
        past = model(input_ids=tokens[:, :-1], use_cache=True).past_key_values
        with FlopCounterMode(display=False) as counter:
            model(input_ids=tokens[:, -1:], past_key_values=past, use_cache=True)
    assert counter.get_total_flops() - angles_in(counter) == decode(from_config(model.config), LENGTH).flops
