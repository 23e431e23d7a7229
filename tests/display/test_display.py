"""What a notebook shows: the facts, escaped, and pictures where they cost little."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
import torch

import regard
from regard import Causal, Documents, Window
from regard.atlas.knockout import Candidate, Knockout
from regard.models import bundled, record


class Checker(HTMLParser):
    """Raises where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shown(thing) -> str:
    html = thing._repr_html_()
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert "<script" not in html
    return html


@pytest.fixture(scope="module")
def recording():
    return record(bundled(), "A <b>bold</b> badger & a lamp. A <b>bold</b> badger & a lamp.", layers=[0, 6])


def test_a_mask_is_drawn():
    html = shown(Causal() & Window(3))
    assert "Causal() &amp; Window(left=3)" in html
    assert "data:image/png;base64," in html


def test_a_mask_of_other_lengths_is_named_only():
    html = shown(Documents([2, 1]))
    assert "Documents" in html
    assert "<img" not in html


def test_a_map_shows_its_first_heads():
    q = torch.randn(1, 10, 5, 8)
    html = shown(regard.AttentionMap.of(q, q))
    assert html.count("<img") == 8
    assert "and 2 more heads" in html
    assert "5 queries × 5 keys" in html


def test_a_long_map_is_not_computed():
    q = torch.randn(1, 1, 50_000, 8)
    html = shown(regard.AttentionMap.of(q, q))
    assert "<img" not in html
    assert ".show()" in html


def test_an_observation_lists_its_statistics():
    q = torch.randn(1, 2, 5, 8)
    html = shown(regard.observe(q, q, q, stats=[regard.Entropy(), regard.TopK(2)]))
    assert "entropy" in html
    assert "1 × 2 × 5" in html
    assert "TopKeys" in html


def test_a_recording_shows_its_text_as_text(recording):
    html = shown(recording)
    assert "Recording of bundled" in html
    assert "A &lt;b&gt;bold&lt;/b&gt; badger &amp; a lamp." in html


def test_an_atlas_counts_kinds_and_lists_heads(recording):
    made = recording.atlas()
    html = shown(made)
    for kind, cards in made.kinds.items():
        assert kind in html
        assert f"{cards[0].layer}.{cards[0].head}" in html


def test_a_knockout_shows_both_predictions():
    one = Candidate(5, " <cat>", 0.5, 0.25, -0.7)
    html = shown(Knockout(3, 9, 0.1, (one,), (one,), one, 1.0, 1.5))
    assert "&#39; &lt;cat&gt;&#39; ←" in html
    assert "50.00%" in html
