"""A trace as people see it: text, terminal, page, notebook."""

from __future__ import annotations

import html
import io
import re
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style

from effort import examples
from regard.errors import MapError
from regard.plots import shade
from regard.tracing import example, trace
from regard.tracing.terminal import as_rich
from strategies import lengths, masks


def test_the_text_of_one_query_walks_through_its_arithmetic():
    text = example("cat").to_text(query="sat")
    assert "Attention, step by step: 4 queries × 4 keys, query sat\n" in text
    for line in [
        "→ sat, first number: (−0.5)×0.1 + 0.3×0.4 + 1.1×(−0.1) + 0.4×0.2 ≈ 0.04",
        "→ sat · cat: 0.04×0.39 + 0.38×0.65 ≈ 0.263",
        "→ sat · cat: 0.263 / √2 ≈ 0.186",
        "   sat  0.052  0.186  0.154    −∞\n   → sat may look at The, cat, sat",
        "   sat  0.308  0.352  0.341     ·\n",
        "→ sat · cat: e^0.186 / (e^0.052 + e^0.186 + e^0.154) ≈ 1.204 / 3.424 ≈ 0.352",
        "→ sat, first number: 0.308×0.61 + 0.352×(−0.16) + 0.341×0.04 ≈ 0.145",
    ]:
        assert line in text


def test_every_option_is_worked_out_for_its_own_head():
    x, w = [[1.0, 2.0], [3.0, -1.0]], torch.eye(2)
    steps = trace(
        x=x, w_q=w, w_k=w, w_v=w, w_o=2 * w, heads=2, scale=0.5, bias=[[0, 1], [0, 1]], softcap=4,
        sink=[-1, 1], score_mod=lambda s, b, h, q, k: s + 10 * h,
    )  # fmt: skip
    text = steps.to_text(query=0, head=1)
    assert "head 1 of 2, query q0" in text
    for line in [
        "→ q0, first number: 1×0 + 2×1 = 2",
        "→ q0 · k0: 2×2 = 4",
        "→ q0 · k0: 4 × 0.5 ≈ 2",
        "→ q0 · k0: 2 + 0 ≈ 2",
        "→ q0 · k0: 4 × tanh(2 / 4) ≈ 1.848",
        "→ q0 · k0: 1.848 becomes 11.848",
        "→ q0 · k0: e^11.8485 / (e^11.8485 + e^10 + e^1) ≈ 1.399e5 / 1.619e5 ≈ 0.864",
        "→ q0, first number: 0.864×2 + 0.136×(−1) ≈ 1.592",
    ]:
        assert line in text
    assert "share" in text


def test_a_query_head_is_shown_with_the_key_head_it_shares():
    x, w_q, w_kv = [[1.0, 1.0]], torch.ones(2, 4), [[1.0, 5.0], [1.0, 2.0]]
    text = trace(x=x, w_q=w_q, w_k=w_kv, w_v=w_kv, heads=4, kv_heads=2).to_text(head=3)
    assert "→ k0, first number: 1×5 + 1×2 = 7" in text
    assert "→ q0 · k0: 2×7 = 14" in text
    assert "→ q0, first number: 1×7 = 7" in text


def test_large_scores_are_shifted_before_they_are_worked_out():
    text = trace([[1.0]], [[100.0], [98.0]], [[0.0], [0.0]], scale=1.0).to_text()
    assert "→ q0 · k0 after subtracting 100: e^0 / (e^0 + e^(−2)) ≈ 1 / 1.135 ≈ 0.881" in text


@examples(20)
@given(lengths(33), lengths(65), st.integers(1, 3), st.data())
def test_every_rendering_of_every_shape_works(q_len, k_len, heads, data):
    mask = data.draw(masks(q_len, k_len, 1, heads, leaves=2))
    q, k = torch.randn(1, heads, q_len, 3), torch.randn(1, heads, k_len, 3)
    steps = trace(q, k, k, mask, sink=torch.zeros(heads))
    where = {"query": q_len - 1, "head": heads - 1}
    assert steps.to_text(**where).count("\n\n") == len(steps)
    assert steps.to_html(**where).count("<section>") == len(steps)
    assert max(map(len, str(steps).splitlines())) <= 130


def test_a_long_table_leaves_out_its_middle():
    q = torch.ones(63, 2)
    table = trace(q, q, q).to_text().split("scores = q kᵀ")[1].split("\n\n")[0]
    assert "k10 … k53" in re.sub(" +", " ", table)
    assert "q30" not in table


def test_a_row_that_fits_is_whole_and_no_line_is_wider_than_the_page():
    q = torch.randn(2, 13, generator=torch.Generator().manual_seed(0))
    text = trace(q, q, q).to_text()
    assert "…" not in text.split("\n\n")[1]
    wide = trace(*torch.randn(3, 2, 65, generator=torch.Generator().manual_seed(0))).to_text()
    assert "…" in wide.split("\n\n")[1]
    assert max(map(len, wide.splitlines())) <= 120


def test_the_page_is_well_formed_and_fetches_nothing():
    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.links, self.cells = [], [], 0

        def handle_starttag(self, tag, attributes):
            self.links += [value for name, value in attributes if name in ("src", "href")]
            self.cells += tag == "td"
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    page, checker = example("cat").to_html(), Checker()
    checker.feed(page)
    assert checker.open == checker.links == []
    assert checker.cells == sum(step.value.numel() for step in example("cat"))
    assert "<script" not in page
    assert "url(" not in page
    assert "prefers-color-scheme:dark" in page


def test_the_page_says_what_the_steps_say():
    page = html.unescape(example("cat").to_html())
    for step in example("cat"):
        assert step.formula in page
        assert step.sentence in page
    assert page.count("<td>−∞</td>") == page.count("<td>·</td>") == 6
    assert ">0.527</td>" in page
    assert "down · cat: 0.464 / √2 ≈ 0.328" in page


def test_tokens_are_escaped_in_the_page_and_are_no_markup_in_the_terminal():
    steps = trace([[1.0]], [[1.0]], [[1.0]], tokens=["<b>&"], key_tokens=["[red]x"])
    assert "&lt;b&gt;&amp;" in steps.to_html()
    assert "<b>" not in steps.to_html()
    assert "[red]x" in on_a_terminal(steps)


@pytest.mark.parametrize(
    ("token", "shown"),
    [("a\nb", "a␊b"), ("", "␣"), ("  ", "␣␣"), ("x" * 40, "x" * 15 + "…"), ("\u200b", "�")],
)
def test_a_token_is_printed_on_one_line_and_never_invisible(token, shown):
    text = trace([[1.0]], [[1.0]], [[1.0]], tokens=[token]).to_text()
    assert f"\n   {shown}  1\n" in text


def test_wide_letters_keep_columns_straight():
    lines = trace([[1.0], [1.0]], [[1.0]], [[1.0]], tokens=["猫", "ab"]).to_text().splitlines()
    assert "   猫  1" in lines
    assert "   ab  1" in lines


def on_a_terminal(steps) -> str:
    # Rich keeps a style's escape codes for the colours of the terminal it was first shown on.
    Style.parse.cache_clear()
    Style._add.cache_clear()
    console = Console(
        file=io.StringIO(), width=100, force_terminal=True, color_system="truecolor", no_color=False
    )
    console.print(steps)
    return console.file.getvalue()


def test_a_terminal_gets_shaded_cells():
    shown = on_a_terminal(example("cat"))
    red, green, blue = (int(shade(1.0, dark=True)[i : i + 2], 16) for i in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}m 1.000 " in shown
    assert "weights = softmax(masked)" in shown


def test_show_prints_the_chosen_query(capsys):
    example("cat").show(query="cat")
    shown = capsys.readouterr().out
    assert "query cat" in shown
    assert "cat · cat" in shown


def test_a_notebook_gets_the_page_without_its_frame():
    fragment = example("cat")._repr_html_()
    assert fragment.startswith('<div class="regard">')
    assert "<html" not in fragment


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"query": "dog"}, "no query is called 'dog'; there are 'The', 'cat', 'sat', 'down'."),
        ({"query": 4}, "query 4 is out of range; there are 4, counted from 0."),
        ({"head": 1}, "the trace has no head 1; there is only one, 0."),
        ({"batch": -1}, "the trace has no batch row -1; there is only one, 0."),
    ],
)
def test_what_is_not_there_cannot_be_shown(where, text):
    with pytest.raises(MapError, match=re.escape(text)):
        example("cat").to_text(**where)


def test_a_token_that_occurs_twice_must_be_named_by_its_number():
    q = torch.ones(3, 2)
    steps = trace(q, q, q, tokens=["the", "cat", "the"])
    with pytest.raises(MapError, match="query 'the' occurs 2 times, at 0, 2"):
        steps.to_html(query="the")
    assert "query the" in steps.to_text(query=-1)


def test_a_row_that_is_too_long_for_a_line_goes_on_in_the_next():
    q, k, v = (torch.randn(n, 3, generator=torch.Generator().manual_seed(5)) for n in (2, 40, 40))
    steps = trace(q, k, v)
    block = next(part for part in steps.to_text(query=1).split("\n\n") if "scores = " in part)
    assert "…" not in block
    names = [line.split() for line in block.splitlines() if line.split()[0].startswith("k")]
    assert [name for line in names for name in line] == [f"k{i}" for i in range(40)]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(as_rich(steps, 1, width=80))
    assert "…" not in console.file.getvalue().split("scores = ")[1]
