"""Telemetry reads every k-th step of training, exactly, and leaves the others alone."""

from __future__ import annotations

import pytest
import torch
from transformers import Trainer, TrainingArguments

from regard.errors import RegardError
from regard.models import Telemetry, TrainerCallback, watch


def expected(model, ids):
    """Max score and mean entropy of every head, from a recording."""
    with watch(model) as recording:
        model(ids)
    return recording.stat("max_score").value.amax((1, 3)), recording.stat("entropy").mean((1, 3))


def test_a_reading_is_the_largest_score_and_mean_entropy_of_each_head(llama, ids):
    peaks, entropy = expected(llama, ids)
    telemetry = Telemetry(llama, every=1)
    with telemetry.step(0):
        llama(ids)
    reading = telemetry.history[0]
    assert torch.allclose(reading.max_score, peaks)
    assert torch.allclose(reading.entropy, entropy)


def test_only_every_kth_step_is_read_and_logged(llama, ids):
    logged = []
    telemetry = Telemetry(llama, every=3, log=logged.append)
    seen = []
    for step in range(7):
        with telemetry.step(step):
            seen.append(llama.config._attn_implementation)
            llama(ids)
    assert [reading.step for reading in logged] == [0, 3, 6]
    assert seen == ["regard", "eager", "eager"] * 2 + ["regard"]
    assert llama.config._attn_implementation == "eager"


def test_gradients_of_a_step_that_is_read_are_those_of_any_other(make_llama, ids):
    model = make_llama()
    model(ids, labels=ids).loss.backward()
    plain = model.model.layers[0].self_attn.k_proj.weight.grad.clone()
    model.zero_grad()
    with Telemetry(model, every=1).step(0):
        model(ids, labels=ids).loss.backward()
    assert torch.allclose(model.model.layers[0].self_attn.k_proj.weight.grad, plain, rtol=1e-4, atol=1e-6)


def test_gradient_checkpointing_and_accumulation_count_each_layer_once(make_llama, ids):
    model = make_llama().train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    telemetry = Telemetry(model, every=1)
    with telemetry.step(0):
        for _ in range(2):
            model(ids, labels=ids, use_cache=False).loss.backward()
    assert telemetry.history[0].entropy.shape == (2, 4)


def test_a_step_that_fails_gives_the_model_back(llama):
    telemetry = Telemetry(llama, every=1)
    with pytest.raises(ZeroDivisionError), telemetry.step(0):
        raise ZeroDivisionError
    assert llama.config._attn_implementation == "eager"
    assert telemetry.history == []


def test_a_watched_model_is_not_read_as_well(llama, ids):
    telemetry = Telemetry(llama, every=1)
    with watch(llama) as recording:
        with pytest.raises(RegardError, match="LlamaForCausalLM is being watched; end that"):
            telemetry.begin(0)
        llama(ids)
    assert len(recording.layers) == 2


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_impossible_intervals_are_refused(every):
    with pytest.raises(RegardError, match=f"every is {every!r}; wanted a whole number of steps, at least 1"):
        TrainerCallback(every=every)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_takes_the_callback_and_keeps_the_readings(make_llama, ids, tmp_path):
    pytest.importorskip("accelerate")
    model = make_llama()
    data = [{"input_ids": ids[0], "labels": ids[0]}] * 6
    arguments = TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=1, max_steps=5, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    callback = TrainerCallback(every=2)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    assert [reading.step for reading in callback.history] == [0, 2, 4]
    logged = [entry for entry in trainer.state.log_history if "attention_entropy" in entry]
    assert [entry["step"] for entry in logged] == [0, 2, 4]
    assert torch.tensor(logged[0]["attention_max_score"]).shape == (2, 4)
    assert model.config._attn_implementation == "eager"
