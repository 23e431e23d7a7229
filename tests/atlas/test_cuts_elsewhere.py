"""Cuts outside the decoder: encoders, cross-attention, classifiers, models of images and sounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers as hf

import regard
from atlas.small_models import HEADS, SIZES, _made, bert, edited_weights, llama, printed, some_ids, t5
from models.sensing import llava, picture, sound, whisper
from regard.atlas import Edge
from regard.errors import MapError, ModelError

READ, WRITTEN = some_ids(11), some_ids(6, seed=2)
BLOCKS = {
    "encoder": "encoder.block.{}.layer.0.SelfAttention",
    "decoder": "decoder.block.{}.layer.0.SelfAttention",
    "cross": "decoder.block.{}.layer.1.EncDecAttention",
}
LENGTHS = {"encoder": (11, 11), "decoder": (7, 7), "cross": (7, 11)}


def without(stack: str, layer: int, head: Any, query: Any = slice(None), key: Any = slice(None)):
    """Which weights of one layer of T5 stay."""
    flags = torch.ones(4, *LENGTHS[stack], dtype=torch.bool)
    flags[head, query, key] = False
    return {BLOCKS[stack].format(layer): flags}


def answers(model: Any, allowed: dict[Any, torch.Tensor], part: Any = None, **given: Any) -> torch.Tensor:
    with edited_weights(model, allowed, part):
        return model(**given).logits.double()


def kl(before: torch.Tensor, after: torch.Tensor) -> float:
    before, after = before.log_softmax(-1), after.log_softmax(-1)
    return float((before.exp() * (before - after)).sum())


CUTS = {
    "a head of cross-attention": ({"heads": [("cross", 1, 2)]}, without("cross", 1, 2)),
    "a head of the encoder": ({"heads": [("encoder", 0, 1)]}, without("encoder", 0, 1)),
    "a head of the decoder": ({"heads": [(0, 3)]}, without("decoder", 0, 3)),
    "an edge of cross-attention": (
        {"edges": [Edge(1, [0, 2], -1, range(3, 9), "cross")]},
        without("cross", 1, torch.tensor([0, 2])[:, None], -1, slice(3, 9)),
    ),
    "an early query of cross-attention": (
        {"edges": [Edge(0, 1, 0, 10, stack="cross")]}, without("cross", 0, 1, 0, 10),
    ),
    "edges of the encoder": (
        {"edges": [Edge(1, 1, 4, range(6), "encoder")]}, without("encoder", 1, 1, 4, slice(0, 6)),
    ),
    "tokens that were read": (
        {"keys": [2, -1]},
        {k: v for s in ("encoder", "cross") for n in (0, 1)
         for k, v in without(s, n, slice(None), slice(None), [2, 10]).items()},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "allowed"), CUTS.values(), ids=CUTS)
def test_a_cut_of_an_encoder_decoder_is_the_dense_weights_edited(asked, allowed):
    model = t5()
    found = regard.knockout(model, READ, written=WRITTEN, at=-2, **asked)
    decoder = torch.cat([torch.tensor([[1]]), WRITTEN], 1)
    given = {"input_ids": READ, "decoder_input_ids": decoder}
    before, after = (answers(model, edit, **given)[0] for edit in ({}, allowed))
    assert (found.at, found.tokens) == (5, 7)
    assert found.kl == pytest.approx(kl(before[5], after[5]), rel=2e-3, abs=1e-7)
    assert not torch.equal(before, after)
    for one in (*found.before, *found.after):
        assert one.logit_change == pytest.approx(float((after - before)[5, one.id]), rel=1e-3, abs=1e-4)
    losses = [torch.nn.functional.cross_entropy(x[:-1], WRITTEN[0]) for x in (before, after)]
    assert (found.loss_before, found.loss_after) == tuple(pytest.approx(float(x), rel=1e-4) for x in losses)
    assert found.target.id == int(WRITTEN[0, -1])
    assert found.target.after == pytest.approx(float(after[5].softmax(-1)[found.target.id]), rel=1e-3)


def test_unless_told_the_decoder_has_only_begun():
    model = t5()
    found = regard.knockout(model, READ, heads=[("cross", 0, None)])
    assert (found.at, found.tokens, found.target, found.loss_before) == (0, 1, None, None)
    same = regard.knockout(model, {"input_ids": READ}, written=[1], heads=[("cross", 0, None)])
    assert same == found


class Words:
    """A tokenizer that ends what was written, as those of encoder-decoders do."""

    def __call__(self, text: str = "", text_target: str = "", **_: Any) -> dict[str, Any]:
        ids = [5 + len(word) for word in (text or text_target).split()]
        return {"input_ids": torch.tensor([ids]) if text else [*ids, 95]}

    def decode(self, ids: list[int]) -> str:
        return f"<{ids[0]}>"


def test_a_text_that_was_written_is_read_without_its_end():
    model = t5()
    found = regard.knockout(model, "a bb ccc", written="dddd a", tokenizer=Words(), heads=[("encoder", 0, 0)])
    ids = regard.knockout(model, [6, 7, 8], written=[9, 6], heads=[("encoder", 0, 0)])
    assert (found.tokens, found.kl) == (3, ids.kl)
    assert found.before[0].text == f"<{found.before[0].id}>"


def test_frames_of_a_sound_are_hidden_from_the_decoder():
    model, processor = whisper()
    heard = processor.feature_extractor(sound().numpy(), sampling_rate=16000, return_tensors="pt")
    given = {"input_features": heard["input_features"]}
    found = regard.knockout(model, given, written=[7, 8, 9], edges=[Edge(key=range(100), stack="cross")])
    flags = torch.ones(4, 4, 150, dtype=torch.bool)
    flags[:, :, :100] = False
    names = [name for name, _ in model.named_modules() if name.endswith("encoder_attn")]
    given["decoder_input_ids"] = torch.tensor([[4, 7, 8, 9]])
    before, after = (answers(model, edit, **given)[0, -1] for edit in ({}, dict.fromkeys(names, flags)))
    assert found.kl == pytest.approx(kl(before, after), rel=1e-3)
    assert found.kl > 0
    assert regard.knockout(model, given, keys=range(100)).kl != found.kl


def classifier() -> Any:
    config = hf.BertConfig(
        **SIZES, num_attention_heads=4, max_position_embeddings=64, id2label={0: "dull", 1: "fine", 2: "odd"}
    )
    return _made("BertForSequenceClassification", config)


def test_a_classifier_is_compared_by_its_classes():
    model, ids = classifier(), some_ids()
    kinds = torch.cat([torch.zeros(1, 6), torch.ones(1, 7)], 1).long()
    given = {"input_ids": ids, "token_type_ids": kinds, "attention_mask": torch.ones_like(ids)}
    found = regard.knockout(model, given, heads=[(1, None)])
    nothing = {1: torch.zeros(4, 13, 13, dtype=torch.bool)}
    before, after = (answers(model, edit, **given)[0] for edit in ({}, nothing))
    assert found.kl == pytest.approx(kl(before, after), rel=1e-3)
    assert (found.at, found.tokens, found.target, found.loss_change) == (None, 13, None, None)
    assert {one.text for one in found.before} == {"dull", "fine", "odd"}
    assert "over 13 tokens: KL" in printed(found.table())


def test_labels_of_tokens_are_named_as_the_model_names_them():
    config = hf.BertConfig(**SIZES, num_attention_heads=4, id2label={0: "O", 1: "B", 2: "I"})
    found = regard.knockout(_made("BertForTokenClassification", config), some_ids(), heads=[(0, 1)], at=4)
    assert {one.text for one in found.after} == {"O", "B", "I"}
    assert (found.at, found.target, found.loss_change) == (4, None, None)


def test_a_model_that_fills_gaps_has_no_token_that_comes_next():
    found = regard.knockout(bert(), some_ids(), heads=[(0, 1)], at=4)
    assert found.target is None
    assert found.kl > 0


@torch.no_grad()
@pytest.mark.parametrize("at", [3, None])
def test_a_model_without_a_head_is_compared_by_its_states(at):
    model, ids = llama(**HEADS).model, some_ids()
    found = regard.knockout(model, ids, keys=[2], at=at)
    everything = torch.ones(4, 13, 13, dtype=torch.bool)
    everything[:, :, 2] = False
    before = model(input_ids=ids).last_hidden_state[0].double()
    with edited_weights(model, dict.fromkeys(range(3), everything)):
        after = model(input_ids=ids).last_hidden_state[0].double()
    sides = [x[at] if at is not None else x.mean(0) for x in (before, after)]
    assert found.similarity == pytest.approx(float(torch.cosine_similarity(*sides, dim=0)), abs=1e-6)
    assert found.similarity < 0.9999
    assert (found.kl, found.before, found.loss_change) == (None, (), None)
    assert json.loads(json.dumps(found.to_dict()))["similarity"] == found.similarity
    assert "cosine 0." in str(found)


def vit() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = hf.ViTConfig(**sizes, image_size=32, patch_size=8, id2label={0: "cat", 1: "mat", 2: "hat"})
    return _made("ViTForImageClassification", config)


def test_patches_are_hidden_from_the_class_token():
    model, pixels = vit(), torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = regard.knockout(model, {"pixel_values": pixels}, edges=[Edge(query=0, key=range(5, 9))])
    flags = torch.ones(4, 17, 17, dtype=torch.bool)
    flags[:, 0, 5:9] = False
    names = [name for name, part in model.named_modules() if type(part).__name__.endswith("Attention")]
    edits = ({}, dict.fromkeys(names, flags))
    before, after = (answers(model, edit, pixel_values=pixels)[0] for edit in edits)
    assert found.kl == pytest.approx(kl(before, after), rel=1e-3)
    assert found.kl > 0
    assert found.before[0].text in ("cat", "mat", "hat")


def test_a_model_that_sees_and_reads_is_cut_in_both():
    model, processor = llava()
    given = dict(processor(text=["<image> what is in the picture ?"], images=picture(), return_tensors="pt"))
    language = model.model.language_model
    text = regard.knockout(model, given, heads=[(1, 2)])
    edit = {name: torch.zeros(1, dtype=torch.bool) for name, part in model.named_modules()
            if "language_model.layers.1" in name and name.endswith("self_attn")}  # fmt: skip
    n = given["input_ids"].shape[1]
    flags = torch.ones(4, n, n, dtype=torch.bool)
    flags[2] = False
    before, after = (
        answers(model, one, language, **given)[0, -1] for one in ({}, dict.fromkeys(edit, flags))
    )
    assert text.kl == pytest.approx(kl(before, after), rel=2e-3)
    assert text.loss_before > 0
    seen = regard.knockout(model, given, heads=[("vision", 1, None)])
    assert seen.kl > 0
    assert seen.kl != text.kl


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: regard.knockout(t5(), READ, heads=[("vision", 0, 0)]), MapError,
     "there is no stack 'vision'; the stacks that attend are encoder, decoder, cross"),
    (lambda: regard.knockout(t5(), READ, heads=[("cross", 2, 0)]), MapError,
     "there is no layer 2 of the cross; the layers that attend are 0 to 1"),
    (lambda: regard.knockout(t5(), READ, heads=[("cross", 1, 9)]), MapError,
     "layer 1 of the cross has no head 9; its heads are 0 to 3"),
    (lambda: regard.knockout(t5(), READ, keys=[11]), MapError, "keys 11 reaches outside the text; it has 11"),
    (lambda: regard.knockout(t5(), READ, written=WRITTEN, at=7, keys=[1]), MapError, "position 7 is outside"),
    (lambda: regard.knockout(t5(), READ, written="a text", keys=[1]), ModelError,
     "written is a text and there is no tokenizer"),
    (lambda: regard.knockout(llama(), READ, written=WRITTEN, keys=[1]), ModelError,
     "LlamaForCausalLM writes where it reads; give the whole text as tokens"),
    (lambda: regard.knockout(llama(), READ, at=None, keys=[1]), ModelError, "at is None, and Llama"),
    (lambda: regard.knockout(vit(), {"pixels": 1}, keys=[1]), ModelError, "tokens hold pixels; wanted"),
    (lambda: regard.knockout(bert(), {"input_ids": READ, "attention_mask": READ < 50}, keys=[1]), ModelError,
     "attention_mask marks padding, and a cut is made in one text"),
    (lambda: regard.importance(t5(), READ), ModelError, "reads one text and writes another"),
])  # fmt: skip
def test_what_cannot_be_cut_says_so(call, error, says):
    with pytest.raises(error, match=says):
        call()
