"""The atlas of real models: what the bundled one does, what random weights do not, and what is refused."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import DELIMITER, HEADS, head, recording_of, story
from regard import AttentionMap, Causal
from regard.atlas import KINDS, atlas, needle
from regard.atlas.kinds.finding import BAR
from regard.errors import RecordingError
from regard.models import Recording, watch


@pytest.fixture(scope="module")
def told_atlas(told):
    return told.atlas()


def test_the_bundled_model_has_previous_token_induction_and_sink_heads(told_atlas):
    assert {"previous token", "induction", "first-token sink"} <= set(told_atlas.kinds)
    best = {kind: cards[0].score(kind) for kind, cards in told_atlas.kinds.items()}
    assert best["previous token"] > 0.7
    assert len(told_atlas.heads) == 54


def test_the_heads_that_retrieve_in_the_story_are_those_that_find_the_needle(told_atlas, bundled_model):
    heads = needle(*bundled_model, depths=1, length=700).heads(8)
    found = {(card.layer, card.head) for card in told_atlas.kinds["retrieval"]}
    assert {(layer, head) for layer, head, _ in heads[:2]} <= found
    assert found <= {(layer, head) for layer, head, _ in heads}
    best = told_atlas.kinds["retrieval"][0].findings["retrieval"]
    assert best.chance < 0.01 < 0.5 < best.weight
    assert f"over {best.queries} queries" in best.evidence


def test_on_repeated_tokens_the_bundled_model_shows_strong_induction(repeated):
    best = repeated.atlas().kinds["induction"][0]
    assert best.score("induction") > 0.6


def eager_attentions(model, ids):
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return torch.stack(model(ids, output_attentions=True).attentions)[:, 0].double()
    finally:
        model.set_attn_implementation("sdpa")


def induction_pattern(tokens):
    """The head detector's matrix of TransformerLens: same tokens below the diagonal, one to the right."""
    same = (tokens[:, None] == tokens).double().tril(-1)
    return torch.nn.functional.pad(same, (1, 0))[:, :-1].tril()


def test_induction_on_repeated_random_tokens_is_the_definition_of_transformer_lens(repeated, bundled_model):
    ids = repeated.token_ids["decoder"]
    weights, pattern = eager_attentions(bundled_model[0], ids), induction_pattern(ids[0])
    # Its head detector: the share of all weight that lies on the pattern.
    detector = (weights * pattern).sum((-2, -1)) / weights.sum((-2, -1))
    # Its demo: the mean of the stripe from the second half to the token after the first occurrence.
    stripe = weights.diagonal(1 - 65, -2, -1)[..., -65:].mean(-1)
    for card in repeated.atlas().heads:
        finding = card.findings["induction"]
        assert finding.queries == 65
        assert finding.weight == pytest.approx(float(stripe[card.layer, card.head]), abs=1e-5)
        share = finding.weight * finding.queries / ids.shape[1]
        assert share == pytest.approx(float(detector[card.layer, card.head]), abs=1e-5)


def test_duplicate_and_previous_token_are_those_of_the_eager_attentions(told, told_atlas, bundled_model):
    ids = told.token_ids["decoder"]
    # The first tokens see what they see in the whole text.
    short = ids[:, :300]
    with watch(bundled_model[0]) as recording, torch.no_grad():
        bundled_model[0](short)
    weights = eager_attentions(bundled_model[0], short)
    same = (short[0][:, None] == short[0]).double().tril(-1)
    able = same.sum(-1) > 0
    duplicate = (weights * same).sum(-1)[..., able].mean(-1)
    previous = weights.diagonal(-1, -2, -1).mean(-1)
    for card in atlas(recording).heads:
        found = card.findings
        where = card.layer, card.head
        assert found["duplicate token"].weight == pytest.approx(float(duplicate[where]), abs=1e-5)
        assert found["previous token"].weight == pytest.approx(float(previous[where]), abs=1e-5)
        assert card.statistics["entropy"] == pytest.approx(
            float(-(weights[where] * weights[where].clamp(min=1e-30).log()).sum(-1).mean()), abs=1e-4
        )


def test_a_model_with_random_weights_has_no_kinds(told, bundled_model):
    from transformers import LlamaForCausalLM

    model, tokenizer = bundled_model
    untrained = LlamaForCausalLM(model.config).eval()
    with watch(untrained, tokenizer=tokenizer, text=told.text) as recording, torch.no_grad():
        untrained(told.token_ids["decoder"][:, :513], logits_to_keep=1)
    seen = atlas(recording)
    assert seen.kinds == {}
    assert "no kinds" in repr(seen)


@pytest.mark.share(3)
@pytest.mark.parametrize("tokens", [33, 65, 257])
@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_random_weights_have_no_kinds_however_sharp_their_rows_are(tokens, spread):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(tokens)
    config = LlamaConfig(hidden_size=128, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
                         intermediate_size=128, vocab_size=512, initializer_range=spread)  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with watch(model) as recording, torch.no_grad():
        model(torch.randint(3, 512, (1, tokens)), logits_to_keep=1)
    seen = atlas(recording)
    assert sum(bool(card.kinds) for card in seen.heads) == 0
    if (tokens, spread) == (257, 1.0):
        assert all("nothing beyond chance" in card.findings["retrieval"].evidence for card in seen.heads)


def test_a_saved_recording_has_the_same_atlas(repeated, tmp_path):
    repeated.save(tmp_path / "x.regard")
    assert atlas(Recording.open(tmp_path / "x.regard")) == atlas(repeated)


def test_each_text_of_a_batch_has_an_atlas_of_its_own(bundled_model):
    ids = torch.randint(3, 4000, (2, 65))
    with watch(bundled_model[0]) as both, torch.no_grad():
        bundled_model[0](ids)
    for row in (0, 1):
        with watch(bundled_model[0]) as alone, torch.no_grad():
            bundled_model[0](ids[row : row + 1])
        for mine, theirs in zip(atlas(both, row=row).heads, atlas(alone).heads, strict=True):
            for kind in mine.findings:
                assert mine.score(kind) == pytest.approx(theirs.score(kind), abs=1e-4)
    with pytest.raises(RecordingError, match=r"row is 2, and the batch has 2 \(rows 0 to 1\)\."):
        atlas(both, row=2)


def test_every_stack_is_surveyed_and_one_may_be_chosen():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4,
                      decoder_start_token_id=1, pad_token_id=0)  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    with watch(model) as recording, torch.no_grad():
        model(input_ids=torch.randint(3, 96, (1, 129)), decoder_input_ids=torch.randint(3, 96, (1, 65)))
    seen = atlas(recording)
    assert [card.stack for card in seen.heads] == ["decoder"] * 8 + ["encoder"] * 8 + ["cross"] * 8
    assert seen.of(1, 3, "cross").score("previous token") is None
    assert seen.of(1, 3, "encoder").score("previous token") is not None
    assert seen.of(1, 3, "cross").findings["induction"].queries > 0
    assert {card.stack for card in atlas(recording, stack="cross").heads} == {"cross"}
    with pytest.raises(RecordingError, match="has no vision; its stacks are: decoder, encoder, cross"):
        atlas(recording, stack="vision")


def test_an_encoder_alone_knows_its_tokens():
    seen = AttentionMap.of(torch.zeros(1, 1, 257, 4), torch.zeros(1, 1, 257, 4))
    recording = recording_of(seen, role="encoder")
    recording.token_ids["decoder"] = story(257)[None]
    assert atlas(recording).of(0, 0).score("duplicate token") is not None


def test_delimiters_may_be_given_as_token_ids():
    n = 513
    recording = recording_of(head("delimiter", n), ids=story(n)[None])
    without = atlas(recording).of(0, 0)
    assert without.score("delimiter") is None
    assert "no tokenizer was given" in without.findings["delimiter"].evidence
    assert atlas(recording, delimiters=[DELIMITER]).of(0, 0).kinds == ("delimiter",)


def test_without_token_ids_there_is_an_atlas_all_the_same():
    card = atlas(recording_of(head("previous token", 257))).of(0, 0)
    assert card.kinds == ("previous token",)
    assert card.findings["induction"].evidence == "the model was not run on token ids"


def test_fewer_token_ids_than_positions_are_no_token_ids():
    card = atlas(recording_of(head("self", 257), ids=story(200)[None])).of(0, 0)
    assert card.findings["induction"].evidence == "the recording has 200 token ids for 257 positions"


def test_progress_is_told_of_every_layer():
    told = []
    atlas(recording_of(*[head("self", 65)] * 3), progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_recording_is_refused():
    with pytest.raises(
        RecordingError, match="nothing was recorded yet; run the model inside the watch block"
    ):
        atlas(recording_of())


def test_an_empty_text_is_refused():
    empty = AttentionMap.of(torch.zeros(1, 1, 0, 4), torch.zeros(1, 1, 0, 4), mask=Causal())
    with pytest.raises(RecordingError, match="an empty text; give the model at least one token"):
        atlas(recording_of(empty))


def test_a_recording_without_maps_says_how_to_keep_them(bundled_model):
    with watch(bundled_model[0], layers=[0], keep_maps=False) as recording, torch.no_grad():
        bundled_model[0](torch.arange(3, 20)[None])
    with pytest.raises(RecordingError, match="keep_maps=True"):
        atlas(recording)


def test_the_statistics_of_a_head_are_those_of_its_map():
    n = 257
    card = atlas(recording_of(head("previous token", n))).of(0, 0)
    found = card.statistics
    assert found["heaviest_distance"] == 1
    assert found["heaviest_distance_mass"] == pytest.approx(256 / 257, abs=1e-4)
    assert found["mean_distance"] == pytest.approx(256 / 257, abs=1e-4)
    assert found["window_90"] == 2
    assert found["entropy"] == pytest.approx(0, abs=1e-3)
    assert found["top_weight"] == pytest.approx(1, abs=1e-4)
    sink = atlas(recording_of(head("first-token sink", n))).of(0, 0).statistics
    assert (sink["heaviest_key"], sink["heaviest_key_mass"]) == (0, pytest.approx(1, abs=1e-4))


def test_every_kind_and_its_bar_are_on_the_page_about_them():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "atlas.md").read_text()
    for kind in KINDS:
        assert f"**{kind.name}**" in page, kind.name
        assert kind.bar == BAR or f"{kind.bar}" in page
    assert f"{BAR}" in page
    assert len(HEADS) == len(KINDS) - 1, "all but alignment, which is of cross-attention"
