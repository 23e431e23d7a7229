"""Every text of a padded batch has exactly the atlas that it has alone, and padding is in no number."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from atlas.builders import recording_of
from atlas.small_models import bert, gpt2, llama, mistral, t5
from regard import AttentionMap, Causal
from regard.atlas import advise, atlas, decay, position_profile, rollout
from regard.atlas.kinds.finding import Kind, lifted
from regard.errors import RecordingError, StatisticError
from regard.masks import Dense, Documents, Padding
from regard.models import Recording, watch
from regard.report import report
from regard.stats import ColumnMass, Decay, Histogram, Pooled, SinkRate

# Float32, through all layers of a model: the batch is computed in other shapes than a text alone.
CLOSE = {"abs": 2e-4, "rel": 2e-3}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def texts(lengths: tuple[int, ...], seed: int = 5, low: int = 3, high: int = 96) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    # Few different tokens, so that they occur again.
    return [torch.randint(low, high, (n,), generator=generator) % 19 + low for n in lengths]


def padded(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    """A batch as a tokenizer makes it: ids, flags, and the position of every token in its text."""
    longest = max(map(len, rows))
    before = [(longest - len(row)) * (side == "left") for row in rows]
    pads = [(n, longest - len(row) - n) for n, row in zip(before, rows, strict=True)]
    ids = torch.stack([torch.nn.functional.pad(row, pad) for row, pad in zip(rows, pads, strict=True)])
    flags = torch.stack(
        [torch.nn.functional.pad(torch.ones_like(row), pad) for row, pad in zip(rows, pads, strict=True)]
    )
    positions = (flags.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": flags, "position_ids": positions}


def watched(model: Any, layers: list[int] | None = None, **given: Any) -> Recording:
    with watch(model, layers=layers) as recording, torch.no_grad():
        model(**given)
    return recording


def same(mine: Any, theirs: Any, where: str) -> None:
    """Equal to rounding, in structure and in words."""
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), where
        for name in mine:
            same(mine[name], theirs[name], f"{where}.{name}")
    elif isinstance(mine, list):
        assert len(mine) == len(theirs), where
        for place, pair in enumerate(zip(mine, theirs, strict=True)):
            same(*pair, f"{where}[{place}]")
    elif isinstance(mine, float):
        assert mine == pytest.approx(theirs, **CLOSE), where
    elif isinstance(mine, str):
        assert NUMBER.sub("#", mine) == NUMBER.sub("#", theirs), where
        numbers = [[float(x) for x in NUMBER.findall(words)] for words in (mine, theirs)]
        # Words have two decimals.
        assert numbers[0] == pytest.approx(numbers[1], abs=0.011), where
    else:
        assert mine == theirs, where


def same_atlas(batch: Recording, row: int, alone: Recording) -> None:
    mine, theirs = atlas(batch, row=row, delimiters=[4]), atlas(alone, delimiters=[4])
    assert [card.kinds for card in mine.heads] == [card.kinds for card in theirs.heads]
    assert mine.tokens == theirs.tokens
    same(mine.to_dict(), theirs.to_dict(), f"row {row}")
    for one, other in zip(decay(batch, row=row), decay(alone), strict=True):
        same(one.to_dict(), other.to_dict(), f"decay of row {row}")
    bins = min(8, min(layer.map.shape[3] for layer in alone.all_layers))
    profiles = [position_profile(batch, bins, row=row), position_profile(alone, bins)]
    same(*(profile.to_dict() for profile in profiles), f"profile of row {row}")
    if alone.layers.role != "cross":
        flows = [rollout(batch, [0, -1], batch=row), rollout(alone, [0, -1])]
        torch.testing.assert_close(*flows, rtol=0, atol=1e-4)


DECODERS = {"llama": llama, "mistral": mistral, "gpt2": gpt2}


@pytest.mark.share(3)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_text_of_a_padded_decoder_batch_has_the_atlas_it_has_alone(name, side):
    model, rows = DECODERS[name](), texts((61, 17, 40))
    batch = watched(model, **padded(rows, side))
    for row, ids in enumerate(rows):
        same_atlas(batch, row, watched(model, input_ids=ids[None]))


@pytest.mark.share(2)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_of_a_padded_encoder_batch_has_the_atlas_it_has_alone(side):
    model, rows = bert(), texts((61, 8, 40))
    batch = watched(model, **padded(rows, side))
    for row, ids in enumerate(rows):
        same_atlas(batch, row, watched(model, input_ids=ids[None]))


@pytest.mark.share(2)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_of_a_padded_translation_batch_has_the_atlas_it_has_alone(side):
    model, read, written = t5(), texts((65, 33, 17)), texts((19, 33, 23), seed=8)
    # T5 knows distances only, so padding on the left moves nothing.
    given, told = padded(read, side), padded(written, "right")
    batch = watched(
        model,
        input_ids=given["input_ids"],
        attention_mask=given["attention_mask"],
        decoder_input_ids=told["input_ids"],
        decoder_attention_mask=told["attention_mask"],
    )
    assert set(batch.stacks) == {"decoder", "encoder", "cross"}
    for row, (source, target) in enumerate(zip(read, written, strict=True)):
        alone = watched(model, input_ids=source[None], decoder_input_ids=target[None])
        same_atlas(batch, row, alone)


@pytest.mark.share(2)
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_bundled_model_has_the_same_heads_in_a_padded_batch(bundled_model, side):
    model, _ = bundled_model
    rows, layers = texts((129, 65), low=3, high=4000), [1, 6]
    batch = watched(model, layers, **padded(rows, side))
    for row, ids in enumerate(rows):
        same_atlas(batch, row, watched(model, layers, input_ids=ids[None]))


def test_a_saved_batch_has_the_same_atlases(tmp_path, bundled_model):
    model, tokenizer = bundled_model
    said = ("One, two. " * 9, "No, no! " * 5)
    rows = [tokenizer(text, return_tensors="pt")["input_ids"][0] for text in said]
    batch = watched(model, [5], **padded(rows, "left"))
    batch.attach(tokenizer)
    batch.save(tmp_path / "batch.regard")
    opened = Recording.open(tmp_path / "batch.regard")
    for row, ids in enumerate(rows):
        alone = watched(model, [5], input_ids=ids[None]).attach(tokenizer)
        for recording in (batch, opened):
            mine, theirs = atlas(recording, row=row), atlas(alone)
            same(mine.to_dict(), theirs.to_dict(), f"row {row}")
            assert theirs.heads[0].findings["delimiter"].evidence != "no delimiters were given"
        assert [token.text for token in batch.alone(row).tokens] == [token.text for token in alone.tokens]


def test_the_report_of_a_padded_batch_is_about_its_first_text(bundled_model):
    model, _ = bundled_model
    rows = texts((33, 65), high=4000)
    batch, alone = (
        watched(model, [5], **given) for given in (padded(rows, "left"), {"input_ids": rows[0][None]})
    )
    pages = [report(recording) for recording in (batch, alone)]
    # Pictures differ in single bits; what is said does not.
    said = [NUMBER.sub("#", re.sub(r"(?s)<(figure|svg).*?</\1>", "", page)) for page in pages]
    assert said[0] == said[1]
    assert "<dt>tokens</dt><dd>33</dd>" in pages[0]


@pytest.mark.parametrize("side", ["left", "right"])
def test_advice_about_a_text_of_a_padded_batch_is_that_about_it_alone(bundled_model, side):
    rows = texts((33, 17), high=96)
    batch = watched(bundled_model[0], [3], **padded(rows, side))
    for row, ids in enumerate(rows):
        alone = advise(watched(bundled_model[0], [3], input_ids=ids[None]), 0.9)
        found = advise(batch, 0.9, row=row)
        assert found.tokens == alone.tokens == len(ids)
        for mine, theirs in zip(found.heads, alone.heads, strict=True):
            assert (mine.kind, mine.pairs) == (theirs.kind, theirs.pairs)
            assert mine.mass == pytest.approx(theirs.mass, abs=1e-4)


def test_padding_between_tokens_is_no_query_either():
    torch.manual_seed(0)
    n, hole = 65, range(30, 37)
    q, k = torch.randn(2, 1, 2, n, 8).unbind(0)
    real = torch.ones(1, n, dtype=torch.bool)
    real[:, hole.start : hole.stop] = False
    padding = Padding(real)
    seen = AttentionMap.of(q, k, mask=padding)
    masked = AttentionMap.of(q, k, mask=Documents(ids=torch.where(real, 0, -1)))
    ids = texts((n,))[0][None]
    found, wanted = (atlas(recording_of(m, ids=ids, role="encoder"), delimiters=[4]) for m in (seen, masked))
    same(found.to_dict(), wanted.to_dict(), "hole")
    assert all(finding.queries <= n - len(hole) for card in found.heads for finding in card.findings.values())


def test_a_dense_causal_mask_tells_padding_too():
    torch.manual_seed(0)
    n, pad = 65, 20
    q, k = torch.randn(2, 2, 2, n, 8).unbind(0)
    allowed = torch.ones(2, 1, n, n, dtype=torch.bool).tril()
    allowed[1, :, :, :pad] = False
    batch = recording_of(AttentionMap.of(q, k, mask=Dense(allowed)))
    alone = recording_of(AttentionMap.of(q[1:, :, pad:], k[1:, :, pad:], mask=Causal()))
    same(atlas(batch, row=1).to_dict(), atlas(alone).to_dict(), "dense")


def test_a_recording_of_one_text_without_padding_is_alone_already(told):
    assert told.alone() is told


def test_a_row_that_the_batch_does_not_have_is_refused(bundled_model):
    batch = watched(bundled_model[0], **padded(texts((9, 5)), "left"))
    for row in (2, -3):
        with pytest.raises(RecordingError, match=rf"^row is {row}, and the batch has 2 \(rows 0 to 1\)\.$"):
            batch.alone(row)


def test_statistics_of_whole_maps_count_no_padding_query():
    model, rows = bert(), texts((33, 21))
    asked = [ColumnMass(normalise=True), Decay(signed=True), Histogram(), SinkRate(), Pooled(64)]
    with watch(model, stats=asked) as batch, torch.no_grad():
        model(**padded(rows, "right"))
    for row, ids in enumerate(rows):
        with watch(model, stats=asked) as alone, torch.no_grad():
            model(input_ids=ids[None])
        n = len(ids)
        for index, layer in alone.layers.items():
            mine = batch.layers[index]
            close = {"rtol": 0, "atol": 1e-4}
            torch.testing.assert_close(mine.column_mass[row, :, :n], layer.column_mass[0], **close)
            first = 33 - n  # distances 1 - 33 … 32 of the batch, 1 - n … n - 1 of the text
            torch.testing.assert_close(
                mine.decay.mean[row, :, first : first + 2 * n - 1], layer.decay.mean[0], **close
            )
            assert torch.equal(mine.decay.count[row, :, first : first + 2 * n - 1], layer.decay.count[0])
            assert int(mine.histogram.counts[row].sum()) == int(layer.histogram.counts.sum()) == 4 * n * n
            assert mine.sink_rate[row] == layer.sink_rate[0]


def test_cross_attention_counts_no_padding_query_of_the_decoder():
    model, read, written = t5(), texts((33, 17)), texts((9, 5), seed=8)
    given, told = padded(read, "right"), padded(written, "right")
    with watch(model, stats=[Histogram()]) as batch, torch.no_grad():
        model(
            input_ids=given["input_ids"],
            attention_mask=given["attention_mask"],
            decoder_input_ids=told["input_ids"],
            decoder_attention_mask=told["attention_mask"],
        )
    for row, (source, target) in enumerate(zip(read, written, strict=True)):
        counts = batch.cross[0].histogram.counts[row]
        assert counts.sum(-1).tolist() == [len(source) * len(target)] * 4


@pytest.mark.parametrize("chance", [-0.1, 1.1, float("nan")])
def test_a_chance_that_is_no_share_is_an_internal_error(chance):
    kind = Kind("self", lambda tally, kind: [])
    with pytest.raises(
        StatisticError, match=r"internal error: an even spread has .* on what 'self' looks for"
    ):
        lifted(
            kind, torch.tensor([0.5]), torch.tensor([chance]), 20, lambda head: "", sharpness=torch.zeros(1)
        )
