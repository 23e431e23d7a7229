"""An atlas in every form it can be written in."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
from rich.console import Console

from atlas.builders import head, recording_of, story
from regard.atlas import Atlas, atlas
from regard.cards import Finding, HeadCard
from regard.errors import RecordingError, RegardError


@pytest.fixture(scope="module")
def seen():
    n = 257
    maps = [head(kind, n) for kind in ("previous token", "uniform", "retrieval")]
    return atlas(recording_of(*maps, ids=story(n)[None]))


def test_the_kinds_of_an_atlas_list_their_heads_best_first(seen):
    assert {kind: [card.layer for card in cards] for kind, cards in seen.kinds.items()} == {
        "previous token": [0],
        "uniform": [1],
        "retrieval": [2],
    }


def test_an_atlas_and_a_card_say_what_they_hold(seen):
    assert repr(seen) == "Atlas(by hand, 3 heads, 257 tokens: 1 previous token, 1 uniform, 1 retrieval)"
    assert repr(seen.of(0, 0)) == "HeadCard(decoder 0.0: previous token 1.00)"


def test_what_was_saved_is_what_is_loaded(seen, tmp_path):
    seen.save(tmp_path / "atlas.json")
    assert Atlas.load(tmp_path / "atlas.json") == seen
    assert list(tmp_path.iterdir()) == [tmp_path / "atlas.json"]


def test_the_plain_data_is_json_and_says_why_a_score_is_missing(seen):
    data = json.loads(json.dumps(seen.to_dict(), allow_nan=False))
    assert data["heads"][0]["kinds"] == ["previous token"]
    missing = data["heads"][0]["findings"]["delimiter"]
    assert missing["score"] is None
    assert "no tokenizer" in missing["evidence"]


def test_csv_has_a_line_per_head_and_empty_cells_for_no_value(seen, tmp_path):
    seen.to_csv(tmp_path / "atlas.csv")
    rows = list(csv.DictReader((tmp_path / "atlas.csv").read_text().splitlines()))
    assert [row["kinds"] for row in rows] == ["previous token", "uniform", "retrieval"]
    assert float(rows[0]["previous_token"]) == pytest.approx(1, abs=1e-3)
    assert rows[0]["delimiter"] == ""
    assert float(rows[1]["first_token_sink"]) == pytest.approx(0, abs=1e-3)


def test_parquet_has_the_same_rows(seen, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    seen.to_parquet(tmp_path / "atlas.parquet")
    assert parquet.read_table(tmp_path / "atlas.parquet").to_pylist() == seen.rows()


def test_without_pyarrow_parquet_names_what_to_install(seen, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RegardError, match=r'pip install "regard\[parquet\]", or write CSV'):
        seen.to_parquet(tmp_path / "atlas.parquet")


def test_the_table_has_a_line_per_head_with_its_evidence(seen):
    page = io.StringIO()
    Console(file=page, width=160).print(seen.table())
    assert "previous token 1.00" in page.getvalue()
    assert "1.00 of the weight is on the token before" in page.getvalue()


def test_heads_that_do_not_exist_are_refused_with_the_valid_range(seen):
    with pytest.raises(RecordingError, match=r"layer 1 of the decoder has no head 1; its heads are 0 to 0\."):
        seen.of(1, 1)
    with pytest.raises(RecordingError, match=r"no layer 3 in this atlas; its layers are: 0, 1, 2\."):
        seen.of(3, 0)
    with pytest.raises(RecordingError, match=r"the atlas has no cross; its stacks are: decoder\."):
        seen.of(0, 0, "cross")
    with pytest.raises(RecordingError, match="there is no kind 'copying'; kinds are: previous token, self"):
        seen.of(0, 0).score("copying")


@pytest.mark.parametrize("write", ["save", "to_csv", "to_parquet"])
def test_a_path_that_cannot_be_written_is_named(seen, tmp_path, write):
    with pytest.raises(RecordingError, match="cannot be written: No such file or directory"):
        getattr(seen, write)(tmp_path / "nowhere" / "atlas")


def test_what_is_no_atlas_is_refused(tmp_path):
    path = tmp_path / "other.json"
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        Atlas.load(path)
    for text in ("{}", "[1]", "not json"):
        path.write_text(text)
        with pytest.raises(RecordingError, match="is not an atlas that regard saved"):
            Atlas.load(path)


def test_an_atlas_of_a_newer_format_is_refused(seen, tmp_path):
    path = tmp_path / "atlas.json"
    path.write_text(json.dumps({**seen.to_dict(), "format": 99}))
    with pytest.raises(RecordingError, match=r"has format 99 and this regard reads up to 1\. Upgrade regard"):
        Atlas.load(path)


def test_a_table_of_one_kind_shows_the_evidence_for_that_kind():
    found = {
        "local": Finding("local", 0.9, 0.25, "near keys"),
        "induction": Finding("induction", 0.3, 0.25, "after the same token"),
    }
    made = Atlas("a model", 9, (HeadCard("decoder", 6, 3, found, {}), HeadCard("decoder", 6, 4, {}, {})))
    assert list(made.table().columns[3].cells) == ["near keys", ""]
    assert list(made.table("induction").columns[3].cells) == ["after the same token"]
