"""What a corpus atlas says: shares and means, tables within 80 columns, figures, exports, the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from regard import corpus
from regard.corpus import CorpusAtlas, Mean, ModelSource, Settings, Share
from regard.corpus.heads import heads_of
from regard.corpus.opening import record_entry
from regard.corpus.state import State
from regard.errors import CorpusError


@pytest.fixture(scope="module")
def made(tiny_model, stories, tmp_path_factory) -> CorpusAtlas:
    folder = tmp_path_factory.mktemp("views") / "a.corpus"
    return corpus.run(tiny_model, stories, folder, settings=Settings(shard=8, batch=300))


@pytest.fixture
def with_kinds(made) -> CorpusAtlas:
    """The atlas as it would be if heads 0.0 and 1.3 were previous-token heads: random ones are of no kind."""
    state = made.state.merge(State.empty(8))
    state.sums["kind_found"][0, 0] = state.sums["kind_fit"][0, 0]
    state.sums["kind_found"][0, 7] = state.sums["kind_fit"][0, 7] // 2
    return replace(made, state=state, heads=heads_of(state, made.plan.heads))


@pytest.mark.parametrize(
    ("found", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (1, 10, 0.0179, 0.4042), (81, 263, 0.2553, 0.3662)]
)
def test_shares_have_wilsons_interval(found, n, low, high):
    """The last row is the example of Newcombe, 1998, table I."""
    share = Share(found, n)
    assert (share.low, share.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_an_interval_holds_its_share(n):
    for found in range(n + 1):
        share = Share(found, n)
        assert 0 <= share.low <= found / n <= share.high <= 1


def test_means_are_those_of_a_list():
    values = [1.0, 4.0, 4.0, 7.0]
    mean = Mean.of(4, sum(values), sum(v * v for v in values))
    assert mean.value == 4
    assert mean.deviation == pytest.approx(math.sqrt(18 / 3))
    assert Mean.of(0, 0, 0).value is None
    assert Mean.of(1, 3, 9).half_width is None


def test_merging_states_is_associative_for_counts_and_tops(made):
    parts = [State.empty(8) for _ in range(3)]
    for number, part in enumerate(parts):
        part.sums["documents"] += number
        part.strongest = [made.state.strongest[head][number::3] for head in range(8)]
    a, b, c = parts
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert left.strongest == right.strongest == made.state.strongest
    assert left.documents == right.documents == 3


def test_the_table_fits_into_80_columns(made):
    console = Console(width=80, file=StringIO())
    console.print(made.table())
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert sum(f"{head.layer}.{head.head}  " in text for head in made.heads) == 8


def test_a_kind_lists_its_heads_by_their_share(made, with_kinds):
    assert list(with_kinds.table("previous token").columns[0].cells) == ["0.0", "1.3"]
    assert [head.head for head in with_kinds.kinds["previous token"]] == [0]
    assert made.table("previous token").row_count == 0
    with pytest.raises(CorpusError, match="there is no kind 'strange'; kinds are: previous token"):
        made.table("strange")


def test_figures_show_kinds_and_say_where_there_are_none(made, with_kinds):
    labels = with_kinds.scatter().axes[0].get_legend_handles_labels()[1]
    assert labels == ["previous token", "no kind"]
    assert [axes.get_title(loc="left") for axes in with_kinds.figure().axes] == ["previous token", ""]
    with pytest.raises(CorpusError, match="no head is of any kind in any document"):
        made.figure()
    with pytest.raises(CorpusError, match="there is no measure 'wit'; measures are: entropy"):
        made.scatter("wit")


def test_a_head_that_is_not_there_is_refused(made):
    with pytest.raises(CorpusError, match=r"there is no layer 0, head 4; the layers are: 0 \(4 heads\)"):
        made.of(0, 4)


def test_rows_come_back_from_parquet(made, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    made.to_parquet(tmp_path / "heads.parquet")
    assert parquet.read_table(tmp_path / "heads.parquet").to_pylist() == made.rows()


def test_the_folder_for_pages_holds_every_head(made, tmp_path):
    made.to_json_folder(tmp_path / "page")
    about = json.loads((tmp_path / "page" / "corpus.json").read_text())
    assert about["documents"] == 23
    assert len(json.loads((tmp_path / "page" / "scatter.json").read_text())) == 8
    for name, head in zip(about["heads"], made.heads, strict=True):
        own = json.loads((tmp_path / "page" / "heads" / f"{name}.json").read_text())
        assert own == json.loads(json.dumps(head.to_dict()))
    with pytest.raises(CorpusError, match="not an empty folder; nothing is overwritten"):
        made.to_json_folder(tmp_path / "page")


def test_an_entry_opens_with_the_very_cell(made, tiny_model, stories):
    for rank in (0, len(made.of(1, 2).top) - 1):
        entry = made.of(1, 2).top[rank]
        found = record_entry(made, ModelSource(str(tiny_model)), stories, 1, 2, rank)
        cell = entry["cells"][0]
        assert (found.query, found.key) == (cell["query"], cell["key"])
        assert found.weight == pytest.approx(cell["weight"], abs=1e-5)
    with pytest.raises(CorpusError, match="rank is 99; layer 1, head 2 has 16 texts"):
        record_entry(made, ModelSource(str(tiny_model)), stories, 1, 2, 99)
    with pytest.raises(CorpusError, match="is not what read the corpus"):
        record_entry(made, ModelSource("bundled"), stories, 1, 2)


def test_the_command_fails_where_no_document_could_be_read(run, tiny_model, stories, tmp_path):
    atlas = str(tmp_path / "none.corpus")
    status, out, err = run("corpus", str(tiny_model), str(stories), "-o", atlas, "--field", "words")
    assert status == 1
    assert "27 not read" in out
    assert "regard corpus show" not in err


def test_the_command_runs_shows_opens_and_exports(run, tiny_model, stories, tmp_path):
    atlas = str(tmp_path / "a.corpus")
    settings = ("--shard-size", "8", "--batch", "300")
    status, out, err = run("corpus", str(tiny_model), str(stories), "-o", atlas, *settings)
    assert status == 0, err
    assert "23 documents" in out
    assert "stories.jsonl:6" in out
    status, _, err = run("corpus", str(tiny_model), str(stories), "-o", atlas, *settings)
    assert status == 2
    assert "--resume" in err
    status, out, _ = run("corpus", "show", atlas, "--json")
    assert len(json.loads(out)["heads"]) == 8
    status, out, _ = run("corpus", "show", atlas, "--head", "1.2")
    assert out.startswith("Layer 1, head 2: the texts where it moves most")
    recording = str(tmp_path / "text.regard")
    command = ("corpus", "open", atlas, str(tiny_model), str(stories), "--head", "1.2", "--no-view")
    status, out, err = run(*command, "-o", recording)
    assert status == 0, err
    assert "layer 1, head 2, query" in out
    status, _, err = run("corpus", "export", atlas, "--json-folder", str(tmp_path / "page"))
    assert status == 0, err
    status, _, err = run("corpus", "show", atlas, "--head", "two")
    assert "--head is 'two'; wanted a layer and a head, such as 5.2" in err
