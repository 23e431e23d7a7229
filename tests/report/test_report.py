"""The report: what it holds, and that it needs nothing but itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import torch

from regard.atlas import atlas
from regard.models import bundled, record
from regard.report import report
from regard.report.sections import place_of

TEXT = (
    "The badger <b>Tams</b> & the heron met by the lamp. The badger <b>Tams</b> & the heron went home. " * 3
)


@pytest.fixture(scope="module")
def recording():
    return record(bundled(), TEXT, layers=[0, 5, 6])


@pytest.fixture(scope="module")
def written(recording, tmp_path_factory):
    """One report with everything that can be asked of it: its page, its folder of figures, its steps."""
    folder, seen = tmp_path_factory.mktemp("figures"), []
    page = report(recording, figures=folder, progress=lambda done, total: seen.append((done, total)))
    return page, folder, seen


@pytest.fixture(scope="module")
def page(written):
    return written[0]


VOID = ("meta", "img", "br")


class Reader(HTMLParser):
    """Collects the tags that are open, and everything a browser would fetch or run."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        links = [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.fetched += [value for value in links if not value.startswith(("data:", "#"))]
        self.fetched += [tag] if tag in ("script", "link", "iframe") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_fetches_nothing(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.fetched == []
    assert re.findall(r"url\((?!#|\"#)[^)]*\)", page) == []


def test_there_is_a_thumbnail_for_every_head(page):
    assert len(re.findall(r'<td title="layer \d+, head \d+: ', page)) == 18


def test_text_is_never_markup(page):
    assert "&lt;b&gt;Tams&lt;/b&gt; &amp; the heron" in page
    assert "<b>Tams" not in page


def test_every_kind_found_has_a_large_picture(recording, page):
    for kind, cards in atlas(recording).kinds.items():
        assert f"Layer {cards[0].layer}, head {cards[0].head}: {kind} " in page


def test_an_atlas_that_is_given_is_the_one_reported():
    recording = record(bundled(), TEXT[:60], layers=[3])
    made = atlas(recording)
    renamed = type(made)("A model by another name", made.tokens, made.heads)
    assert "What A model by another name attended to" in report(recording, atlas=renamed)


def test_figures_are_written_beside_it(written):
    _, folder, _ = written
    names = {path.name for path in folder.iterdir()}
    assert {"decay.png", "decay.svg", "positions.png", "positions.svg"} <= names
    assert (folder / "decay.png").read_bytes().startswith(b"\x89PNG")


def test_progress_ends_at_the_end(written):
    _, _, seen = written
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == len(seen)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_a_text_of_hardly_any_tokens_has_a_report_too(tokens):
    model, tokenizer = bundled()
    found = record((model, tokenizer), torch.arange(5, 5 + tokens), layers=[3])
    assert "<h2>Every head</h2>" in report(found)


def test_without_a_tokenizer_tokens_are_left_out():
    model, _ = bundled()
    assert "Sinks and heavy tokens" in report(record(model, torch.arange(5, 40), layers=[3]))


def test_the_model_is_named_and_its_name_is_not_broken(page):
    assert "<h1>What the bundled model attended to</h1>" in page
    assert "<dt>model</dt><dd>bundled</dd>" in page
    assert "<dt>architecture</dt><dd>SmolLM3ForCausalLM</dd>" in page
    assert "overflow-wrap:anywhere" not in page


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("first-token sink", (905, 5)),
        ("induction", (905, 455)),
        ("local", (705, 705)),
        ("strided", (705, 705)),
    ],
)
def test_the_part_enlarged_shows_what_the_head_is(kind, place):
    # Blocks of 10 x 10 cells: a diagonal, heaviest at 70; a cell far from it; one in the first column.
    pooled = torch.eye(100)
    pooled[70, 70], pooled[90, 0], pooled[90, 45] = 2.0, 0.5, 0.7
    assert place_of(kind, pooled, 10, 0) == place
