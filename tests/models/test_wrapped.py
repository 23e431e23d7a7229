"""Models inside others are found, and recorded as they are alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import transformers as hf

import regard
from regard.errors import ModelError, RecordingError
from regard.models import Recording

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
@pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:.*TypedStorage.*")
def test_a_quantised_model_is_recorded_and_is_another_one(tmp_path):
    model = torch.ao.quantization.quantize_dynamic(llama(), {torch.nn.Linear}, dtype=torch.qint8)
    logits = model(IDS).logits
    with regard.watch(model) as recording:
        torch.testing.assert_close(model(IDS).logits, logits, atol=1e-2, rtol=1e-2)
    recording.check_model(model)
    with pytest.raises(RecordingError, match="another config or other weights"):
        recording.check_model(llama())
    recording.save(tmp_path / "x.regard")
    assert len(Recording.open(tmp_path / "x.regard").atlas().heads) == 8


@pytest.fixture
def one_process(tmp_path):
    """A process group of one, on the CPU."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def in_ddp():
    return torch.nn.parallel.DistributedDataParallel(llama())


def in_fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(llama(), device_id=torch.device("cpu"))


def sharded():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    model, mesh = llama(), init_device_mesh("cpu", (1,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh) or model


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [in_ddp, in_fsdp, sharded])
def test_a_model_in_data_parallel_is_recorded_as_it_is_alone(make, one_process):
    model, alone = make(), llama()
    with regard.watch(alone) as expected:
        logits = alone(IDS).logits
    with regard.watch(model) as recording:
        assert torch.equal(model(IDS).logits, logits)
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


def test_a_model_that_is_exported_while_it_is_watched_says_how_to_export_it():
    model = llama()
    with pytest.raises(ModelError, match="Export it before or after"), regard.watch(model):
        torch.export.export(model, (torch.arange(5)[None],), {"use_cache": False})
