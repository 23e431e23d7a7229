"""What `regard view` opens without loading the model: a text that the bundled model has read before."""

from __future__ import annotations

import json
import threading

import pytest

from regard.viewer import Settings
from regard.viewer.opening import prepared
from regard.viewer.shelf import BUNDLED, Shelf
from regard.viewer.starting import MAKING

TEXT = "Once upon a time there was a lamp."


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(cache=tmp_path)


@pytest.fixture
def loads(monkeypatch) -> list[str]:
    """The names of the models that were loaded."""
    names: list[str] = []
    load = Shelf.load
    monkeypatch.setattr(Shelf, "load", lambda shelf, name: (names.append(name), load(shelf, name))[1])
    return names


def test_a_text_that_was_read_before_is_shown_without_the_model(settings, loads):
    (first,), _ = prepared(settings, TEXT).library.entries()
    assert loads == [BUNDLED]
    session = prepared(settings, TEXT)
    (second,), _ = session.library.entries()
    assert (loads, second.id, second.recording.text) == ([BUNDLED], first.id, TEXT)
    # It is the recording of the model that a cut runs.
    session.check_model(second, session.shelf.load(session.model_of(second)).model)


@pytest.mark.parametrize("changed", ["_version_of", "DATA"])
def test_another_version_or_installation_reads_the_text_again(
    settings, loads, monkeypatch, changed, tmp_path
):
    prepared(settings, TEXT)
    if changed == "DATA":
        from regard.viewer.making import DATA

        other = tmp_path / "elsewhere"
        other.symlink_to(DATA)
        monkeypatch.setattr("regard.viewer.making.DATA", other)
    else:
        monkeypatch.setattr("regard.viewer.making._version_of", lambda package: f"{package} of tomorrow")
    prepared(settings, TEXT)
    assert loads == [BUNDLED, BUNDLED]


@pytest.mark.parametrize("damage", ["unfinished", "cut off"])
def test_a_recording_that_is_not_whole_is_made_again(settings, loads, damage):
    (entry,), _ = prepared(settings, TEXT).library.entries()
    assert entry.path is not None
    if damage == "unfinished":
        about = json.loads((entry.path / "manifest.json").read_text())
        (entry.path / "manifest.json").unlink()
        (entry.path / "partial.json").write_text(json.dumps({**about, "complete": False}))
    else:
        next(entry.path.glob("*decoder-004*")).write_bytes(b"")
    (again,), _ = prepared(settings, TEXT).library.entries()
    assert loads == [BUNDLED, BUNDLED]
    assert again.recording.complete


def test_the_model_is_loaded_in_the_background_once(loads):
    shelf = Shelf()
    for _ in range(2):
        shelf.warm(BUNDLED, seconds=0)
        for thread in threading.enumerate():
            if thread.name == MAKING:
                thread.join()
    assert loads == [BUNDLED]


def test_a_model_that_cannot_be_loaded_in_the_background_says_so_to_whoever_needs_it(monkeypatch):
    def broken(shelf: Shelf, name: str) -> None:
        raise ImportError("no transformers")

    monkeypatch.setattr(Shelf, "_made", broken)
    shelf = Shelf()
    shelf.warm(BUNDLED, seconds=0)
    with pytest.raises(ImportError, match="no transformers"):
        shelf.load(BUNDLED)
