"""Every family of transformers that can be built tiny computes under `watch` what it computes eagerly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from models.families import LENGTH, inputs_of, notes, registered, tiny_model
from regard.masks import And, Window
from regard.models import Recording, watch

COMPARED = [name for name in registered() if name not in notes()["left_out"]]
# Which stack of a recording each of transformers' outputs shows.
OUTPUTS = {"encoder_attentions": "encoder", "decoder_attentions": "decoder", "cross_attentions": "cross"}

# Families warn about themselves, each in its own way.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def first_tensor(output: Any) -> torch.Tensor:
    """Hidden states or logits: whatever a model puts first."""
    return next(value for value in output.to_tuple() if isinstance(value, torch.Tensor))


def check_close(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    """Equal up to rounding in float32, measured by the largest number there is."""
    scale = max(float(theirs.abs().max()), 1e-6)
    error = float((ours - theirs).abs().max()) / scale
    assert error < 1e-4, f"{what} differ by {error:.1e} of their size"


def rows_that_count(inputs: dict[str, torch.Tensor], length: int) -> torch.Tensor:
    """Padding attends to nothing under regard and to everything eagerly; neither means anything."""
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape[1] != length:
        return torch.ones(2, length, dtype=torch.bool)
    return mask.bool()


def check_maps(recording: Recording, output: Any, inputs: dict[str, torch.Tensor]) -> int:
    """Sampled tiles of every map against eager's; returns how many maps were compared."""
    compared = 0
    for name in (*OUTPUTS, "attentions"):
        theirs = [weights for weights in getattr(output, name, None) or () if weights is not None]
        if not theirs:
            continue
        stack = recording.stacks[OUTPUTS[name]] if name in OUTPUTS else recording.layers
        for layer, weights in zip(stack.values(), theirs, strict=True):
            assert layer.map.shape == tuple(weights.shape)
            rows = torch.arange(0, weights.shape[2], 3)
            keys = range(weights.shape[3] // 3, weights.shape[3])
            counts = torch.ones(len(weights), len(rows), dtype=torch.bool)
            if name != "cross_attentions" and len(weights) == 2:
                counts = rows_that_count(inputs, weights.shape[2])[:, rows]
            ours = layer.map[:, :, rows, keys].transpose(1, 2)[counts]
            expected = weights[:, :, rows][..., keys.start :].transpose(1, 2)[counts]
            assert torch.allclose(ours, expected, rtol=1e-3, atol=1e-5), f"maps of {layer.site} differ"
            compared += 1
    return compared


@torch.no_grad()
@pytest.mark.parametrize("name", COMPARED)
def test_a_family_computes_what_it_computes_eagerly(name):
    model = tiny_model(name)
    for padded in (False, True):
        inputs = inputs_of(model, padded=padded)
        if padded and "attention_mask" not in inputs:
            continue
        torch.manual_seed(0)
        expected = model(**inputs, output_attentions=True)
        torch.manual_seed(0)
        with watch(model) as recording:
            output = model(**inputs)
        ours, theirs = first_tensor(output), first_tensor(expected)
        if theirs.ndim == 3:
            counts = rows_that_count(inputs, theirs.shape[1])
            if len(counts) == len(theirs):
                ours, theirs = ours[counts], theirs[counts]
        check_close(ours, theirs, "hidden states")
        assert recording.stacks
        if name not in notes()["maps"]:
            check_maps(recording, expected, inputs)


def generating() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return [name for name in COMPARED if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES]


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in generating() if name not in notes()["not_generating"]])
def test_a_family_generates_what_it_generates_eagerly(name):
    model = tiny_model(name, "AutoModelForCausalLM")
    ids = inputs_of(model)["input_ids"]
    options = {
        "max_new_tokens": 5,
        "min_new_tokens": 5,
        "do_sample": False,
        "attention_mask": torch.ones_like(ids),
        "output_scores": True,
        "return_dict_in_generate": True,
    }
    expected = model.generate(ids, **options)
    with watch(model) as recording:
        output = model.generate(ids, **options)
    assert torch.equal(output.sequences, expected.sequences)
    finite = [(a.isfinite() & b.isfinite()) for a, b in zip(output.scores, expected.scores, strict=True)]
    for ours, theirs, known in zip(output.scores, expected.scores, finite, strict=True):
        check_close(ours[known], theirs[known], "logits")
    layers = [layer for layer in recording.layers.values() if layer.rows == LENGTH + 4]
    assert layers
    if name in notes()["maps"] or not all(layer.whole for layer in layers):
        return
    eager = model(output.sequences[:, :-1], output_attentions=True)
    check_maps(recording, eager, {})


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gemma2", "granite_swa", "t5", "bert", "minicpm3"])
def test_half_precision_is_as_near_to_the_truth_as_eager_is(name):
    model = tiny_model(name)
    inputs = inputs_of(model)
    model = model.bfloat16()
    # The reference is what these rounded weights compute without further rounding.
    exact = tiny_model(name).double()
    exact.load_state_dict({key: value.double() for key, value in model.state_dict().items()})
    truth = first_tensor(exact(**inputs))
    eager = first_tensor(model(**inputs)).double()
    with watch(model):
        ours = first_tensor(model(**inputs)).double()
    assert (ours - truth).abs().max() <= 2 * (eager - truth).abs().max() + 1e-5


def test_windows_in_these_comparisons_are_shorter_than_the_text():
    model = tiny_model("mistral")
    with watch(model) as recording:
        model(**inputs_of(model))
    mask = recording.layers[0].mask
    assert isinstance(mask, And)
    assert any(isinstance(part, Window) and part.left < LENGTH for part in mask.parts)


def test_at_least_two_hundred_families_are_compared():
    assert len(COMPARED) >= 200
    assert len(set(COMPARED)) == len(COMPARED)


def test_every_exception_is_a_family_and_has_a_reason():
    known = set(registered())
    for section in ("own_code", "maps", "left_out", "not_generating"):
        for name, reason in notes()[section].items():
            assert name in known, (
                f"{name} in [{section}] is no family of transformers {transformers.__version__}"
            )
            assert len(reason) > 10
    assert set(notes()["sizes"]) <= known
