"""What the server answers before it has something to show, and how the application takes its place."""

from __future__ import annotations

import threading
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace

import httpx

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
    said = asked(starting, "/starting").json()
    assert said["seconds_left"] is None
    assert [name for name, _ in said["ended"]] == ["Loading PyTorch", "Recording"]
    assert all(seconds >= 0 for seconds in (said["seconds"], *(spent for _, spent in said["ended"])))


def test_other_paths_ask_to_come_again():
    answer = asked(Starting(), "/api/recordings")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "starting" in answer.json()["error"]


def test_a_patient_one_keeps_requests_until_the_other_is_there():
    async def other(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the other"})

    other.router = SimpleNamespace(lifespan_context=lambda _: AsyncExitStack())
    starting = Starting(patient=True)
    threading.Timer(0.2, setattr, (starting, "app", other)).start()
    assert "<progress" in asked(starting, "/").text
    assert asked(starting, "/api/recordings").text == "the other"


def test_a_patient_one_lets_go_of_requests_when_the_other_fails():
    starting = Starting(patient=True)
    starting.error = "no model"
    assert asked(starting, "/api/recordings").status_code == 503


def test_an_error_waits_until_an_open_page_has_shown_it():
    starting = Starting()
    starting.fail("nobody looks, so nobody is waited for")
    starting = Starting()
    assert asked(starting, "/starting").json()["error"] is None
    failing = threading.Thread(target=starting.fail, args=("no such model",))
    failing.start()
    while starting.error is None:
        time.sleep(0.001)
    assert failing.is_alive()
    assert asked(starting, "/starting").json()["error"] == "no such model"
    failing.join()


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


def test_what_goes_wrong_meanwhile_is_told_and_ends_the_server(tmp_path):
    def make(_):
        raise ModelError(f"no model in {tmp_path / 'files'}")

    server, starting = SimpleNamespace(should_exit=False), Starting()
    made = _Making(Settings(cache=tmp_path), make, starting, server)
    made.run()
    assert (server.should_exit, starting.error) == (True, "no model in files")
    assert isinstance(made.error, ModelError)
