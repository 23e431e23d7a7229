"""Every command with bad input: one line, the right exit status, and nothing half-written."""

from __future__ import annotations

import errno
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import regard.report
from regard.commands import app, record
from regard.commands.output import written

# {rec}: a recording. damaged.regard: the beginning of one. file.txt: a text. bin.txt: no text.
# folder: an empty one. taken: one that is not.
REFUSED = [
    "nope",
    "--nope",
    "record --nope",
    "record bundled --device",
    "record bundled missing.txt",
    "record bundled folder",
    "record bundled bin.txt",
    "record bundled file.txt --device nowhere",
    "record bundled file.txt --dtype int8",
    "record bundled file.txt --layers 99",
    "record bundled file.txt --too-long maybe",
    "record bundled file.txt -o file.txt",
    "record bundled file.txt -o taken",
    "record bundled file.txt -o {rec}",
    "record bundled --chat file.txt",
    "record bundled file.txt --image missing.png",
    "record bundled --audio missing.wav",
    "record bundled file.txt -o no/x.regard",
    "record ./nowhere file.txt",
    "record folder file.txt",
    "record missing.gguf file.txt",
    "record gpt2-or-a-text",
    "view file.txt --no-open",
    "view folder --no-open",
    "view --model folder --no-open",
    "view --text folder --no-open",
    "view --port 99999",
    "view damaged.regard --no-open",
    "view --cache file.txt --no-open",
    "plot missing.regard",
    "plot folder",
    "plot file.txt",
    "plot {rec} --layer 5 -o folder",
    "plot {rec} --layer 5 -o x.bmp",
    "plot {rec} --layer 5 --how median",
    "plot {rec} --layer five",
    "atlas missing.regard",
    "atlas folder",
    "atlas file.txt",
    "atlas {rec} --csv folder",
    "atlas {rec} --parquet no/x.parquet",
    "atlas {rec} --html folder",
    "report missing.regard",
    "report file.txt",
    "report {rec} -o folder",
    "report {rec} --figures file.txt",
    "compare {rec}",
    "compare {rec} missing.regard",
    "compare {rec} folder",
    "compare {rec} damaged.regard",
    "compare {rec} {rec} --top 0",
    "explain missing.txt",
    "explain folder file.txt",
    "explain bundled folder",
    "explain bundled file.txt --html folder",
    "explain one bundled --model bundled",
    "knockout missing.txt --head 1.1",
    "knockout bundled folder --head 1.1",
    "knockout folder file.txt --head 1.1",
    "knockout bundled file.txt --head 1.1 --top 0",
    "knockout bundled file.txt --head 1.1 --at 99",
    "needle missing.txt",
    "needle bundled folder",
    "needle folder file.txt",
    "needle --depths 0",
    "needle --lengths some",
    "needle --length -5",
    "evict missing.txt",
    "evict bundled folder",
    "evict folder file.txt",
    "evict bundled file.txt --keep some",
    "evict bundled file.txt --policy nope",
    "evict bundled file.txt -o folder",
    "evict bundled file.txt --heads -1",
    "evict bundled file.txt --prompt 0",
    "evict bundled file.txt --length 0",
    "advise missing.regard",
    "advise damaged.regard",
    "advise {rec} --share 2",
    "advise {rec} --layer 99",
    "mcp missing.regard",
    "mcp folder",
    "mcp damaged.regard",
    "mcp --model folder",
    "mcp --write file.txt",
    "mcp --port 0",
    "check missing.txt",
    "check folder",
    "check bin.txt",
    "claims nope",
    "claims sinks --figures file.txt",
    "claims sinks --docs folder",
    "claims sinks --model folder",
    "corpus bundled missing.jsonl",
    "corpus bundled folder",
    "corpus folder texts.jsonl",
    "corpus bundled texts.jsonl --engine abacus",
    "corpus bundled texts.jsonl -o new.corpus --shard 5/3",
    "corpus bundled texts.jsonl -o new.corpus --resume",
    "corpus bundled texts.jsonl -o taken",
    "corpus bundled texts.jsonl --device nowhere -o new.corpus",
    "corpus show missing",
    "corpus show folder",
    "corpus show file.txt",
    "corpus show folder --plot x.bmp",
    "corpus merge folder",
    "corpus export folder --parquet x.parquet",
    "corpus open folder bundled texts.jsonl --head 5.2",
    "cost nope",
    "cost folder",
    "cost file.txt",
    "cost llama-3.1-8b --plot x.bmp",
    "cost llama-3.1-8b --plot folder",
    "cost llama-3.1-8b --context long",
    "doctor missing.py:attention",
    "doctor folder:attention",
    "doctor file.txt:attention",
    "doctor nothing",
    "exercise nope",
    "exercise show 99",
    "exercise show four",
    "info --nope",
]


@pytest.fixture
def here(tmp_path):
    """A folder with one of everything that can be given by mistake."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "damaged.regard").mkdir()
    (tmp_path / "damaged.regard" / "manifest.json").write_text("{", encoding="utf-8")
    (tmp_path / "taken" / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "file.txt").write_text("The badger lit the lamp.", encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text('{"text": "The badger lit the lamp."}\n', encoding="utf-8")
    (tmp_path / "bin.txt").write_bytes(bytes(range(128, 256)))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.share(3)
@pytest.mark.parametrize("line", REFUSED)
def test_bad_input_is_one_line_and_status_2_and_leaves_nothing(run, here, recorded, line):
    before = contents(here)
    status, out, err = run(*shlex.split(line.replace("{rec}", str(recorded))))
    assert (status, out) == (2, "")
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    assert contents(here) == before


def test_every_command_is_given_bad_input():
    named = {command.callback.__name__ for command in app.registered_commands} | {"corpus"}
    assert named == {line.split()[0] for line in REFUSED} - {"nope", "--nope"}


WRITES = [
    ("plot {rec} --layer 5 -o out.png", "matplotlib.figure.Figure.savefig"),
    ("atlas {rec} --csv out.csv", "regard.atlas.Atlas.to_csv"),
    ("atlas {rec} --parquet out.parquet", "regard.atlas.Atlas.to_parquet"),
    ("atlas {rec} --html out.html", "pathlib.Path.write_text"),
    ("report {rec} -o out.html", "pathlib.Path.write_text"),
    ("explain --html out.html", "pathlib.Path.write_text"),
    ("cost llama-3.1-8b --plot out.png", "matplotlib.figure.Figure.savefig"),
    (
        'evict bundled "The badger lit the lamp." --policy sinks --keep 0.5 -o out.png',
        "matplotlib.figure.Figure.savefig",
    ),
]


@pytest.mark.parametrize(("line", "writer"), WRITES)
@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (
            lambda: OSError(errno.ENOSPC, "No space left on device"),
            1,
            "regard: {}: No space left on device.\n",
        ),
        (KeyboardInterrupt, 130, "regard: stopped.\n"),
    ],
    ids=["full", "interrupted"],
)
def test_a_file_that_fails_half_way_is_not_left(
    run, tmp_path, recorded, monkeypatch, line, writer, failure, status, said
):
    # What is drawn takes seconds; how it is written is what counts here.
    monkeypatch.setattr(regard.report, "report", lambda *_, **__: "<html>")
    out = next(part for part in line.split() if part.startswith("out."))
    (tmp_path / out).write_bytes(b"the old one")

    def fail(written_by, *arguments, **_):
        draft = written_by if isinstance(written_by, Path) else Path(arguments[0])
        draft.write_bytes(b"half")
        raise failure()

    monkeypatch.setattr(writer, fail)
    found, _, err = run(*shlex.split(line.replace("{rec}", str(recorded))))
    assert (found, err) == (status, said.format(out))
    assert [path.name for path in tmp_path.iterdir()] == [out]
    assert (tmp_path / out).read_bytes() == b"the old one"


@pytest.mark.parametrize("layers", [1, 3])
def test_an_interrupted_recording_says_what_is_left(run, monkeypatch, layers):
    def interrupt(done, _):
        if done == layers:
            raise KeyboardInterrupt

    # The name `regard.commands.record` is the function's; the module is found by its own.
    module = sys.modules[record.__module__]
    monkeypatch.setattr(module, "progress", lambda _: nullcontext(interrupt))
    status, out, err = run("record", "bundled", "The badger lit the lamp.", "-o", "x.regard")
    assert (status, out) == (130, "")
    assert err == "regard: stopped. What was recorded stays in x.regard: complete it with --resume.\n"
    monkeypatch.setattr(module, "progress", lambda _: nullcontext(None))
    status, out, _ = run("record", "bundled", "The badger lit the lamp.", "-o", "x.regard", "--resume")
    assert status == 0
    assert "9 layers" in out


def test_a_pipe_is_written_to_and_not_replaced():
    with written(Path("/dev/null")) as draft:
        assert draft == Path("/dev/null")


def test_a_link_keeps_pointing_where_it_did(tmp_path):
    (tmp_path / "real.txt").write_text("old", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with written(tmp_path / "link.txt") as draft:
        draft.write_text("new", encoding="utf-8")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text(encoding="utf-8") == "new"


def test_a_group_without_a_command_prints_its_help(run):
    assert "merge" in "".join(run("corpus")[1:])
