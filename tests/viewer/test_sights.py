"""Pictures and sounds: where their patches and frames are among a stack's keys, and when words were said."""

from __future__ import annotations

from base64 import b64decode

import pytest
from fastapi.testclient import TestClient

from models.sensing import llava, picture, qwen, sound, whisper
from regard.atlas import token_times
from regard.models import Recording, record
from regard.viewer import create_app
from regard.viewer.session import Session
from regard.viewer.settings import Settings


class Asked:
    """A recording in memory, behind a server."""

    def __init__(self, recording: Recording) -> None:
        session = Session(Settings(recordings=()))
        entry = session.library.add(recording, "seen")
        self.recording = recording
        self.client = TestClient(create_app(session=session), base_url="http://127.0.0.1")
        self.base = f"/api/recordings/{entry.id}"

    def get(self, path: str = "") -> dict:
        answer = self.client.get(self.base + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def places(self, role: str) -> list[tuple]:
        found = self.get(f"/stacks/{role}/pictures")["pictures"]
        return [(one["name"], one["kind"], one["start"], one["rows"], one["columns"]) for one in found]


@pytest.fixture(scope="module")
def heard() -> Asked:
    return Asked(record(whisper(), "a red cat sat on the mat", audio=sound()))


def test_images_beside_a_text_are_where_their_tokens_are():
    asked = Asked(record(llava(), "what is <image> in <image> ?", images=[picture(), picture()]))
    assert asked.get()["pictures"] == ["decoder", "vision"]
    assert asked.places("decoder") == [("image 1", "image", 2, 4, 4), ("image 2", "image", 19, 4, 4)]
    # The vision part sees each image by itself, after its class token; the first one is shown.
    assert asked.places("vision") == [("image 1", "image", 1, 4, 4)]
    (first, _) = asked.get("/stacks/decoder/pictures")["pictures"]
    assert b64decode(first["png"]) == asked.recording.pictures[0].png


def test_patches_that_were_merged_lie_on_the_grid_of_their_tokens():
    asked = Asked(record(qwen(), "a <|image_pad|> cat", images=picture(32, 64)))
    assert asked.places("decoder") == [("image 1", "image", 1, 2, 4)]
    assert asked.get()["pictures"] == ["decoder"]


def test_a_sound_is_one_row_of_frames_without_the_silence_behind_it(heard):
    assert heard.get()["pictures"] == ["encoder", "cross"]
    for role in ("encoder", "cross"):
        assert heard.places(role) == [("sound", "sound", 0, 1, 100)]
    assert heard.places("decoder") == []


def test_tokens_have_the_times_of_the_atlas(heard):
    assert heard.get("/said") == {"seconds": token_times(heard.recording).tolist(), "why_not": None}


def test_a_recording_of_a_text_has_neither(client, base):
    assert client.get(base).json()["pictures"] == []
    assert client.get(f"{base}/stacks/decoder/pictures").json() == {"pictures": []}
    said = client.get(f"{base}/said").json()
    assert said["seconds"] is None
    assert "the recording is not of a sound" in said["why_not"]
