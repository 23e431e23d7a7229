"""Models inside others are found, and recorded as they are alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers as hf

import regard
from regard.errors import ModelError

IDS = torch.arange(3, 20)[None]


def llama():
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    return hf.LlamaForCausalLM(config).eval()


class Around(torch.nn.Module):
    """Holds a model among other things, as DistributedDataParallel and trainers do."""

    def __init__(self):
        super().__init__()
        self.module, self.other = llama(), torch.nn.Linear(2, 2)

    def forward(self, ids):
        return self.module(ids)


class Inside(torch.nn.Module):
    """Calls the model's `forward` and not the model, as PEFT's tuners do."""

    def __init__(self):
        super().__init__()
        self.model = llama()

    def forward(self, ids):
        return self.model.forward(input_ids=ids)


def compiled():
    return torch.compile(llama(), backend="eager")


def compiled_and_run():
    model = compiled()
    model(IDS)
    return model


def compiled_in_place():
    model = llama()
    model.compile(backend="eager")
    model(IDS)
    return model


# Dynamo takes seconds for each model that it compiles.
LONG = [pytest.param(make, marks=pytest.mark.long) for make in (compiled, compiled_in_place)]


@torch.no_grad()
@pytest.mark.parametrize("make", [Around, Inside, compiled_and_run, *LONG])
def test_a_wrapped_model_is_recorded_as_it_is_alone(make):
    torch._dynamo.reset()
    model, alone = make(), llama()
    with regard.watch(alone) as expected:
        logits = alone(IDS).logits
    with regard.watch(model) as recording:
        assert torch.equal(model(IDS).logits, logits)
    assert recording.model.kind == "LlamaForCausalLM"
    assert torch.equal(recording.token_ids["decoder"], IDS)
    for layer in (0, 1):
        assert torch.equal(recording.maps[layer].dense(), expected.maps[layer].dense())


@torch.no_grad()
def test_a_model_that_a_library_holds_beside_itself_is_found():
    held = SimpleNamespace(_model=llama())
    with regard.watch(held) as recording:
        held._model(IDS)
    assert len(recording.layers) == 2


def test_two_models_are_not_guessed_between():
    pair = torch.nn.ModuleList([llama(), llama()])
    with pytest.raises(ModelError, match="holds 2 transformers models"), regard.watch(pair):
        pass


def test_cutting_names_the_model_to_give():
    with pytest.raises(ModelError, match="Around wraps a LlamaForCausalLM; give that one itself"):
        regard.knockout(Around(), IDS, heads=[(0, 0)])


@torch.no_grad()
def test_a_model_compiled_into_one_graph_says_how_to_watch_it():
    torch._dynamo.reset()
    model = torch.compile(llama(), backend="eager", fullgraph=True)
    with (
        pytest.raises(torch._dynamo.exc.Unsupported, match="call the model that was compiled"),
        regard.watch(model),
    ):
        model(IDS)
