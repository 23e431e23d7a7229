"""Two atlases side by side, as a person reads them in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from regard.atlas import compare
from regard.cards import Atlas, Finding, HeadCard

STATISTICS = {"entropy": 1.25, "top_weight": 0.5, "sink_mass": 0.25, "mean_distance": 123.75}


def atlas(score: float, tokens: int = 301, stack: str = "decoder") -> Atlas:
    findings = {"first-token sink": Finding("first-token sink", score, 0.3, "")}
    cards = [HeadCard(stack, 11, head, findings, STATISTICS) for head in range(13)]
    return Atlas("model", tokens, tuple(cards))


def printed(table, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_heads_is_cut_nowhere(width):
    found = compare(atlas(0.9), atlas(0.1), names=("a-long-name-of-a-recording.regard", "b.regard"))
    said = printed(found.heads_table(), width)
    assert "…" not in said
    assert "11.12" in printed(found.heads_table(13), width)
    assert "123.75 → 123.75" in said
    assert max(map(len, said.splitlines())) <= width


def test_a_kind_that_went_is_shown_with_an_arrow():
    said = " ".join(printed(compare(atlas(0.9), atlas(0.1)).heads_table(1), 120).split())
    assert "first-token sink → –" in said
    same = printed(compare(atlas(0.9), atlas(0.9)).heads_table(1), 120)
    assert "first-token sink" in same
    assert "first-token sink →" not in same


def test_heads_of_one_stack_are_named_by_layer_and_head_alone():
    assert "head 11.0 moved most, by 0.80." in compare(atlas(0.9), atlas(0.1)).summary()


def test_atlases_that_are_alike_name_no_head():
    said = "A and B have the same heads; no head's score changed by 0.01 or more, in any kind."
    assert compare(atlas(0.9), atlas(0.904)).summary() == said


def test_statistics_are_named_in_words():
    said = printed(compare(atlas(0.9), atlas(0.1)).kinds_table(), 80)
    assert "mean top weight" in said
    assert "mean distance" in said
    assert "mean mean" not in said


@pytest.mark.parametrize(
    ("tokens", "doubt"),
    [
        ((301, 64), ""),
        ((301, 12), " B has 12 tokens, and below 64 few kinds show."),
        ((12, 12), " A and B have 12 tokens each, and below 64 few kinds show."),
        ((12, 9), " A has 12 tokens and B has 9 tokens, and below 64 few kinds show."),
    ],
)
def test_a_text_too_short_for_kinds_is_said(tokens, doubt):
    found = compare(atlas(0.9, tokens[0]), atlas(0.1, tokens[1]))
    assert found.summary().endswith(f"by 0.80.{doubt}")
