"""Texts from every kind of file, in an order that names alone decide."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from regard.corpus.texts import Document, Texts, Unreadable
from regard.errors import CorpusError

WANTED = [f"text number {n}" for n in range(7)]


def texts_of(found: Texts) -> list[str]:
    return [document.text for document in found.documents(0, found.count)]


def write_parquet(path, texts, group=3):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "id": texts}), path, row_group_size=group)


def write_dataset(folder, texts):
    """As `Dataset.save_to_disk` does: two Arrow streams, and a list of them."""
    import pyarrow

    folder.mkdir()
    names = []
    for part, own in enumerate((texts[:4], texts[4:])):
        names.append(f"data-0000{part}-of-00002.arrow")
        table = pyarrow.table({"text": own})
        with pyarrow.ipc.new_stream(folder / names[-1], table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))


@pytest.fixture(params=["folder", "jsonl", "several", "parquet", "dataset"])
def source(request, tmp_path):
    kind, path = request.param, tmp_path / request.param
    if kind in ("parquet", "dataset"):
        pytest.importorskip("pyarrow")
    lines = [json.dumps({"text": text}) + "\n" for text in WANTED]
    if kind == "folder":
        (path / "deep").mkdir(parents=True)
        for n, text in enumerate(WANTED):
            (path / ("a" if n < 3 else "deep") / f"{n}.txt").parent.mkdir(exist_ok=True)
            (path / ("a" if n < 3 else "deep") / f"{n}.txt").write_text(text)
    elif kind == "jsonl":
        path = path.with_suffix(".jsonl")
        path.write_text("\n".join(lines))  # with blank lines
    elif kind == "several":
        path.mkdir()
        (path / "1.jsonl").write_text("".join(lines[:2]))
        (path / "2.jsonl").write_text("".join(lines[2:]))
    elif kind == "parquet":
        path = path.with_suffix(".parquet")
        write_parquet(path, WANTED)
    else:
        write_dataset(path, WANTED)
    return path


def test_every_kind_of_file_gives_the_same_texts(source):
    found = Texts(source)
    assert found.count == 7
    assert texts_of(found) == WANTED


def test_any_range_gives_its_documents_with_their_numbers(source):
    found = Texts(source)
    for start in range(7):
        for stop in range(start, 8):
            documents = list(found.documents(start, stop))
            assert [d.number for d in documents] == list(range(start, min(stop, 7)))
            assert [d.text for d in documents] == WANTED[start:stop]


def test_texts_that_changed_have_another_mark(source):
    before = Texts(source).marks
    assert Texts(source).marks == before
    file = max((f for f in [source, *source.rglob("*")] if f.is_file() and f.suffix != ".json"), key=str)
    with open(file, "ab") as opened:
        opened.write(b"\n{}\n")
    # A Parquet file with something behind it cannot even be read.
    with suppress(CorpusError):
        assert Texts(source).marks != before


def test_a_long_jsonl_is_read_from_the_middle(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n\n" for n in range(200)))
    found = Texts(path)
    assert [(d.name, d.text) for d in found.documents(130, 132)] == [
        ("long.jsonl:261", "text 130"),
        ("long.jsonl:263", "text 131"),
    ]


def test_records_that_cannot_be_read_say_why(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"text": "good"}\n[1]\n{"text": null}\n\xff\xfe{\n')
    good, listed, null, bytes_ = Texts(path).documents(0, 4)
    assert good == Document(0, "some.jsonl:1", "good")
    assert listed == Unreadable(1, "some.jsonl:2", "not an object but list")
    assert null == Unreadable(2, "some.jsonl:3", "field 'text' holds NoneType, not a text")
    assert isinstance(bytes_, Unreadable)
    assert bytes_.reason.startswith("not UTF-8")


def test_a_file_that_is_not_utf8_is_listed(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    assert list(Texts(tmp_path).documents(0, 1)) == [
        Unreadable(0, "a.txt", "not UTF-8: unexpected end of data at byte 3")
    ]


def test_null_in_a_column_is_listed(tmp_path):
    pytest.importorskip("pyarrow")
    write_parquet(tmp_path / "a.parquet", ["one", None])
    reasons = [getattr(d, "reason", None) for d in Texts(tmp_path / "a.parquet").documents(0, 2)]
    assert reasons == [None, "column 'text' holds NoneType, not a text"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, r"holds no documents; wanted a folder of text files \(\.txt"),
        (lambda p: (p / "a.jsonl").write_text(""), "holds no documents"),
        (
            lambda p: [(p / n).write_text("x") for n in ("a.txt", "b.jsonl")],
            "it is not clear what",
        ),
        (lambda p: (p / "dataset_dict.json").write_text('{"splits": ["train", "test"]}'), "several splits"),
    ],
)
def test_folders_without_a_corpus_are_refused(make, message, tmp_path):
    make(tmp_path)
    with pytest.raises(CorpusError, match=message):
        Texts(tmp_path)


def test_names_that_are_no_corpus_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="does not exist; wanted a folder"):
        Texts(tmp_path / "nowhere")
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(CorpusError, match=r"has the ending '\.pdf'; wanted"):
        Texts(tmp_path / "a.pdf")
    pytest.importorskip("pyarrow")
    write_parquet(tmp_path / "b.parquet", ["x"])
    with pytest.raises(CorpusError, match="has no column 'body'; its columns are: text, id"):
        Texts(tmp_path / "b.parquet", "body")
