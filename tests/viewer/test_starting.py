"""What the server answers before it has something to show, and how the application takes its place."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest

from loops import finished
from regard.errors import ModelError
from regard.viewer import Settings
from regard.viewer.serving import _Making
from regard.viewer.starting import Starting


def asked(app, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return finished(ask())


def test_a_page_is_there_before_the_model_and_tells_how_far_it_is():
    starting = Starting()
    page = asked(starting, "/")
    assert page.status_code == 200
    assert "<progress" in page.text
    starting.tell("Recording", 3, 8)
    said = asked(starting, "/starting").json()
    assert (said["doing"], said["done"], said["total"]) == ("Recording", 3, 8)
    assert said["seconds_left"] >= 0
    starting.tell("Reading")
    assert asked(starting, "/starting").json()["seconds_left"] is None


def test_other_paths_ask_to_come_again():
    answer = asked(Starting(), "/api/recordings")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "starting" in answer.json()["error"]


def test_the_application_takes_over_and_lives_once(tmp_path):
    starting, told = Starting(), []

    def make(tell):
        from regard.viewer.session import Session

        tell("Loading")
        told.append(starting.doing)
        return Session(Settings(cache=tmp_path))

    server = SimpleNamespace(should_exit=False)
    made = _Making(Settings(cache=tmp_path), make, starting, server)
    made.run()
    assert (made.error, server.should_exit, told) == (None, False, ["Loading"])
    assert asked(starting, "/api/worked").json() == {"names": ["cat", "three"]}
    # The page that waits sees this, and loads the page of the viewer.
    assert asked(starting, "/starting").status_code == 404

    async def whole_life() -> list[str]:
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[str] = []

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message["type"])

        await starting({"type": "lifespan"}, receive, send)
        return sent

    assert finished(whole_life()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    made.close()


def test_what_goes_wrong_meanwhile_ends_the_server():
    def make(_):
        raise ModelError("no model")

    server = SimpleNamespace(should_exit=False)
    made = _Making(Settings(), make, Starting(), server)
    made.run()
    assert server.should_exit
    with pytest.raises(ModelError, match="no model"):
        raise made.error
