"""Presets against the totals that were published with the models."""

from __future__ import annotations

import pytest

from regard.cost import PRESETS, parameters, preset
from regard.errors import ModelError

# Parameters of the released checkpoints, and for those with none the total of the paper with its digits.
RELEASED = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-27b": 27_009_346_304,
    "smollm2-135m": 134_515_008,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}
# name: (published total, published active or None, relative difference allowed)
ROUNDED = {
    "transformer-base": (65e6, None, 0.04),  # the vocabulary is published as "about 37000"
    "transformer-big": (213e6, None, 0.01),
    "gpt3-175b": (175e9, None, 0.005),
    "llama-4-maverick": (400e9, 17e9, 0.015),
    "llama-4-scout": (109e9, 17e9, 0.015),  # published with its vision part
    "deepseek-v3": (671e9, 37e9, 0.02),
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_preset_has_the_parameters_of_the_released_model(name):
    assert parameters(preset(name)).total == RELEASED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_a_preset_agrees_with_the_published_total(name):
    total, active, allowed = ROUNDED[name]
    found = parameters(preset(name))
    assert found.total == pytest.approx(total, rel=allowed)
    assert active is None or found.active == pytest.approx(active, rel=allowed)


@pytest.mark.parametrize(("name", "active"), [("gpt-oss-20b", "3.61"), ("gpt-oss-120b", "5.13")])
def test_active_parameters_are_as_published_where_rows_of_the_embedding_are_left_out(name, active):
    found = parameters(preset(name))
    assert f"{found.active_without_embedding / 1e9:.2f}" == active
    assert found.active_without_embedding == found.active - found.embeddings


def test_a_tied_embedding_stays_in_both_counts_because_it_is_the_head():
    found = parameters(preset("gpt2"))
    assert found.active_without_embedding == found.active == found.total


def test_every_preset_is_held_to_a_published_number():
    assert set(RELEASED) | set(ROUNDED) == set(PRESETS)


def test_a_preset_is_found_under_other_spellings():
    assert preset("GPT-3") == preset("gpt3-175b")
    assert preset("Llama_7B").name == "llama-7b"


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(
        ModelError, match=r"no preset 'lama-7b'; presets are: transformer-base, .*Did you mean llama-7b"
    ):
        preset("lama-7b")


def test_what_is_not_published_is_said():
    assert "the band is not published" in preset("gpt3-175b").notes[0]
