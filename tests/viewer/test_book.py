"""The bundled book: recorded once, in half precision, kept, and offered beside the story."""

from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

from regard.errors import RegardError
from regard.viewer import Settings, create_app
from regard.viewer.opening import open_viewer, prepared
from regard.viewer.session import BOOK
from regard.viewer.shelf import HALF
from viewer.waiting import finished

BEGINNING = "Alice was beginning to get very tired of sitting by her sister on the bank."


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.viewer.making.sample_book", lambda: BEGINNING)
    monkeypatch.setattr("regard.models.sample_text", lambda: "Once upon a time there was a lamp.")
    return Settings(cache=tmp_path)


def names(session) -> list[str]:
    return [entry.name for entry in session.library.entries()[0]]


def test_the_book_is_read_once_in_half_precision_and_by_the_model_at_hand(settings):
    told = []
    session = prepared(settings, None, lambda *said: told.append(said), book=True)
    (entry,), _ = session.library.entries()
    assert (entry.name, entry.recording.text) == (BOOK, BEGINNING)
    assert entry.recording.layers[0].segments[0].k.dtype == torch.bfloat16
    assert session.model_of(entry) == HALF
    session.check_model(entry, session.shelf.load(HALF).model)
    assert told[-1][1:] == (9, 9)
    told.clear()
    prepared(settings, None, lambda *said: told.append(said), book=True)
    assert [said for said in told if len(said) == 3] == []


def test_a_viewer_opens_on_the_story_and_lists_the_book_once_it_was_read(settings):
    assert names(prepared(settings)) == ["bundled story"]
    prepared(settings, book=True)
    assert names(prepared(settings)) == ["bundled story", BOOK]


def test_the_page_can_ask_for_the_book(settings):
    session = prepared(settings)
    with TestClient(create_app(settings, session), base_url="http://127.0.0.1") as client:
        # Asked twice, it is there once.
        for _ in range(2):
            job = client.post("/api/jobs", json={"kind": "book"}).json()["id"]
            said = finished(client, job)
            assert said["state"] == "done", said
        listed = client.get("/api/recordings").json()
        assert [entry["name"] for entry in listed["recordings"]] == ["bundled story", BOOK]
        assert said["result"]["recording"] == listed["recordings"][1]["id"]
        assert listed["default"] == listed["recordings"][0]["id"]


def test_the_book_is_not_read_by_another_model_nor_beside_another_text():
    with pytest.raises(RegardError, match="leave out --text and --model"):
        open_viewer(Settings(), "a text", book=True)
    with pytest.raises(RegardError, match="leave out --text and --model"):
        open_viewer(Settings((), "some/model"), book=True)
