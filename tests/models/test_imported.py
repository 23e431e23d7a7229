"""Attention weights of other programs as a recording."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import RecordingError
from regard.masks import Causal, Dense
from regard.models import Recording, bundled, from_attentions, record

TEXT = "The badger lit the lamp. The badger lit the lamp."


@pytest.fixture(scope="module")
def eager():
    model, tokenizer = bundled()
    model.set_attn_implementation("eager")
    ids = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        weights = model(**ids, output_attentions=True).attentions
    return weights, [tokenizer.decode([i]) for i in ids["input_ids"][0]]


def test_cells_are_those_that_were_given(eager):
    weights, tokens = eager
    made = from_attentions(weights, tokens)
    assert len(made.layers) == 9
    for index, given in enumerate(weights):
        torch.testing.assert_close(made.maps[index].dense(), given, atol=1e-6, rtol=1e-4)
    assert made.layers[3].mask == Causal()
    assert [token.text for token in made.tokens] == tokens


def test_it_surveys_and_saves_as_one_that_was_recorded(eager, tmp_path):
    made, ours = from_attentions(*eager), record(bundled(), TEXT)
    for name in ("entropy", "mean_distance", "sink_mass"):
        torch.testing.assert_close(made.stat(name), ours.stat(name), atol=1e-3, rtol=1e-3)
    assert {kind: len(cards) for kind, cards in made.atlas().kinds.items()} == {
        kind: len(cards) for kind, cards in ours.atlas().kinds.items()
    }
    made.save(tmp_path / "x.regard")
    again = Recording.open(tmp_path / "x.regard")
    assert torch.equal(again.maps[4].dense(), made.maps[4].dense())
    assert again.tokens == made.tokens


def test_any_pattern_of_zeros_is_kept():
    weights = np.array([[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]], "float32")
    made = from_attentions([weights])
    assert isinstance(made.layers[0].mask, Dense)
    np.testing.assert_allclose(made.maps[0].dense()[0].numpy(), weights, atol=1e-7)


def test_half_precision_may_round():
    weights = torch.rand(1, 2, 9, 9).softmax(-1)
    made = from_attentions([weights.bfloat16()])
    torch.testing.assert_close(made.maps[0].dense(), weights, atol=2e-3, rtol=2e-2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "attentions is empty; wanted one tensor"),
        (
            [torch.eye(3)],
            r"attentions\[0\] is \(3, 3\) of torch.float32; wanted floats \(batch",
        ),
        ([torch.full((1, 1, 2, 2), 0.6)], "does not sum to 1: row 0 of head 0 in batch row 0 sums to 1.2"),
        ([torch.tensor([[[[1.5, -0.5]]]])], "has weights below 0, NaN or infinity"),
        ([torch.full((1, 1, 2, 2), float("nan"))], "has weights below 0, NaN or infinity"),
    ],
)
def test_what_is_no_attention_is_refused(given, said):
    with pytest.raises(RecordingError, match=said):
        from_attentions(given)


def test_tokens_and_roles_must_fit():
    with pytest.raises(RecordingError, match="there are 2 tokens and 3 keys"):
        from_attentions([torch.eye(3)[None, None]], ["a", "b"])
    with pytest.raises(RecordingError, match="role is 'left'; wanted one of cross"):
        from_attentions([torch.eye(3)[None, None]], role="left")


@pytest.mark.parametrize(("given", "tokens", "says"), [
    ([None, None], None, "is None: the model was not asked for its weights"),
    ((((torch.eye(2)[None, None],),) * 2), None, "is of type tuple; wanted a tensor"),
    ({"a": torch.eye(2)[None, None]}, None, "attentions is of type dict; wanted a list"),
    ("attention.pt", None, "attentions is text; load the file first"),
    ([torch.eye(2)[None, None]], [5, 6], "decode the ids first"),
])  # fmt: skip
def test_what_is_no_list_of_layers_is_refused_in_a_sentence(given, tokens, says):
    with pytest.raises(RecordingError, match=says):
        from_attentions(given, tokens)
