"""`rollout`: the product of the maps, without the maps."""

from __future__ import annotations

import pytest
import torch

from atlas.small_models import MODELS, gpt2, llama, some_ids, t5
from regard.atlas.rollout import FEW, rollout
from regard.errors import MapError, ModelError, RecordingError
from regard.models import Recording, watch

# Where the matrix W_O of each family is, said by hand.
PROJECTIONS = {
    "llama": lambda model, layer: model.model.layers[layer].self_attn.o_proj.weight.T,
    "mistral": lambda model, layer: model.model.layers[layer].self_attn.o_proj.weight.T,
    "gemma2": lambda model, layer: model.model.layers[layer].self_attn.o_proj.weight.T,
    "gpt2": lambda model, layer: model.transformer.h[layer].attn.c_proj.weight,
    "bert": lambda model, layer: model.bert.encoder.layer[layer].attention.output.dense.weight.T,
}


def recorded(model, ids, **options):
    with torch.no_grad(), watch(model, **options) as recording:
        model(input_ids=ids)
    return recording


@torch.no_grad()
def dense(model, ids, residual=0.5, row=0):
    """Π_l ((1 - residual) mean_h A + residual I), multiplied out in float64 from eager attention."""
    model.set_attn_implementation("eager")
    product = torch.eye(ids.shape[1], dtype=torch.float64)
    for weights in model(input_ids=ids, output_attentions=True).attentions:
        step = (1 - residual) * weights[row].double().mean(0)
        product = (step + residual * torch.eye(ids.shape[1])) @ product
    return product


@torch.no_grad()
def dense_by_norm(model, name, recording, residual=0.5):
    """The same with every weight times ‖v_j W_O^h‖, and rows that sum to 1; pair by pair."""
    n = recording.maps[0].shape[2]
    product = torch.eye(n, dtype=torch.float64)
    for index, layer in recording.layers.items():
        weights, values = layer.map.dense()[0].double(), layer.map.problem.v[0].double()
        values = values.repeat_interleave(len(weights) // len(values), 0)
        w_o = PROJECTIONS[name](model, index).double().unflatten(0, (len(weights), -1))
        written = (weights[..., None] * (values @ w_o)[:, None]).norm(dim=-1).sum(0)
        step = (1 - residual) * written / written.sum(-1, keepdim=True)
        product = (step + residual * torch.eye(n)) @ product
    return product


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [1, 2, 33])
def test_rollout_is_the_dense_product(name, n):
    model, ids = MODELS[name](), some_ids(n)
    found = rollout(recorded(model, ids), list(range(n)))
    assert (found - dense(model, ids)).abs().max() < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_rollout_by_norm_is_the_dense_product(name):
    model = MODELS[name]()
    recording = recorded(model, some_ids(33))
    found = rollout(recording, list(range(33)), norm_weighted=True, model=model)
    assert (found - dense_by_norm(model, name, recording)).abs().max() < 1e-5
    assert torch.allclose(found.sum(1), torch.ones(33))


def test_rows_read_one_by_one_and_rows_from_a_pass_are_the_same(monkeypatch):
    model, ids = llama(), some_ids(65)
    recording = recorded(model, ids)
    passed = rollout(recording, [3, 64])
    monkeypatch.setitem(rollout.__globals__, "FEW", 1000)
    assert 65 > FEW
    assert torch.allclose(rollout(recording, [3, 64]), passed, atol=1e-6)


def test_one_query_gives_one_row_and_several_give_several():
    recording = recorded(llama(), some_ids(13))
    assert rollout(recording).shape == (13,)
    several = rollout(recording, [-1, 4])
    assert torch.allclose(several[0], rollout(recording, 12), atol=1e-6)
    assert torch.allclose(several[1], rollout(recording, 4), atol=1e-6)
    assert several[1, 5:].abs().max() == 0


@pytest.mark.parametrize("residual", [0.0, 0.3, 1.0])
def test_the_residual_is_weighed_as_asked(residual):
    model, ids = llama(), some_ids(13)
    found = rollout(recorded(model, ids), residual=residual)
    assert (found - dense(model, ids, residual)[-1]).abs().max() < 1e-5


def test_each_text_of_a_batch_has_its_own_rollout():
    model = llama()
    ids = torch.cat([some_ids(13, seed=1), some_ids(13, seed=2)])
    recording = recorded(model, ids)
    for row in (0, 1):
        assert (rollout(recording, batch=row) - dense(model, ids, row=row)[-1]).abs().max() < 1e-5
        one = rollout(recorded(model, ids[row : row + 1]), norm_weighted=True, model=model)
        assert torch.allclose(rollout(recording, batch=row, norm_weighted=True, model=model), one, atol=1e-5)


def test_generated_tokens_are_part_of_the_text():
    model, ids = llama(), some_ids(7)
    with torch.no_grad(), watch(model) as recording:
        text = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert (rollout(recording) - dense(model, text[:, :-1])[-1]).abs().max() < 1e-5


def test_a_recording_on_disk_has_the_same_rollout(tmp_path):
    model = llama()
    recording = recorded(model, some_ids(13))
    recording.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    for options in ({}, {"norm_weighted": True, "model": model}):
        assert torch.equal(rollout(read, **options), rollout(recording, **options))


def test_the_decoder_of_an_encoder_decoder_has_a_rollout():
    model = t5()
    with torch.no_grad(), watch(model) as recording:
        model(input_ids=some_ids(9), decoder_input_ids=some_ids(5))
    assert float(rollout(recording).sum()) == pytest.approx(1)
    assert rollout(recording).shape == (5,)


def test_progress_counts_the_layers():
    told = []
    rollout(recorded(llama(), some_ids(5)), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"query": 13}, MapError, "position 13 is outside the text; it has 13 tokens, so wanted -13 to 12."),
        ({"query": []}, MapError, "query is empty; give one position, or several."),
        ({"residual": 1.5}, MapError, "residual is 1.5; it must be from 0 (attention alone) to 1 (nothing"),
        ({"batch": 1}, MapError, "batch is 1; the recording has 1 texts, 0 to 0."),
        ({"norm_weighted": True}, RecordingError, "needs the output projections W_O, which a recording does"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_a_reason(options, error, message):
    with pytest.raises(error) as caught:
        rollout(recorded(llama(), some_ids(13)), **options)
    assert message in str(caught.value)


def test_the_model_of_another_recording_is_refused():
    with pytest.raises(RecordingError, match="the recording is of LlamaForCausalLM"):
        rollout(recorded(llama(), some_ids(13)), norm_weighted=True, model=gpt2())


def test_an_output_projection_that_is_not_found_is_named():
    model = llama()
    recording = recorded(model, some_ids(5))
    for layer in model.model.layers:
        layer.self_attn.mixer = layer.self_attn.o_proj
        del layer.self_attn.o_proj
    recording.check_model = lambda model: None
    with pytest.raises(ModelError, match=r"the output projection of model.layers.2.self_attn was not found"):
        rollout(recording, norm_weighted=True, model=model)


def test_recordings_without_what_rollout_needs_say_so():
    model = llama()
    with pytest.raises(RecordingError, match="was not kept; watch with keep_maps=True"):
        rollout(recorded(model, some_ids(5), keep_maps=False))
    short = recorded(model, some_ids(5))
    short.complete = False
    with pytest.raises(RecordingError, match="was cut short and lacks layers"):
        rollout(short)
    with pytest.raises(RecordingError, match="nothing was recorded yet"), watch(model) as empty:
        rollout(empty)
