"""Who is let in, and how much at once."""

from __future__ import annotations

import json
import threading

import anyio
import pytest
from fastapi.testclient import TestClient

from loops import finished
from regard.viewer import Settings, create_app
from regard.viewer.security import COOKIE


def server(tmp_path, base_url="http://127.0.0.1:7270", **settings) -> TestClient:
    return TestClient(create_app(Settings(cache=tmp_path, **settings)), base_url=base_url)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:81", "[::1]:7270"])
def test_loopback_names_are_let_in(tmp_path, host):
    assert server(tmp_path).get("/api/info", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "",
        "[::1",
        "localhost/x",
        "10.0.0.1",
    ],
)
def test_a_foreign_host_name_is_refused(tmp_path, host):
    answer = server(tmp_path).get("/api/info", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"] == f"this server is not {host!r}. Use the address that regard view printed."


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://localhost"]
)
def test_another_origin_is_refused(tmp_path, origin):
    answer = server(tmp_path).post("/api/jobs", json={}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert (
        answer.json()["error"] == f"requests from {origin} are refused; only the viewer's own page may ask."
    )


def test_the_page_s_own_origin_is_let_in(tmp_path):
    own = {"Origin": "http://127.0.0.1:7270", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert server(tmp_path).get("/api/info", headers=own).status_code == 200


@pytest.mark.parametrize("mode", ["no-cors", "cors", "navigate"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_to_the_page_and_ask_nothing(tmp_path, site, mode):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    client = server(tmp_path, static=tmp_path)
    assert client.get("/api/info", headers=headers).status_code == 403
    assert client.get("/", headers=headers).status_code == (503 if mode == "navigate" else 403)


def test_a_token_is_asked_of_every_request_and_the_page_s_cookie_carries_it(tmp_path):
    client = server(tmp_path, host="0.0.0.0", token="s3cret", static=tmp_path)
    (tmp_path / "index.html").write_text("page")
    for path in ("/", "/api/info", "/api/info?token=wrong", "/index.html", "/api/openapi.json"):
        answer = client.get(path)
        assert answer.status_code == 401, path
        assert answer.json()["error"].startswith("the token is missing or wrong.")
        assert "set-cookie" not in answer.headers
    page = client.get("/?token=s3cret")
    assert page.status_code == 200
    assert f"{COOKIE}=s3cret; HttpOnly; SameSite=Strict" in page.headers["set-cookie"]
    assert client.get("/api/info").status_code == 200


def test_with_a_host_given_addresses_are_let_in_and_foreign_names_are_not(tmp_path):
    client = server(tmp_path, host="0.0.0.0", token="x")
    assert client.get("/api/info?token=x", headers={"Host": "192.168.7.9:7270"}).status_code == 200
    assert client.get("/api/info?token=x", headers={"Host": "evil.example"}).status_code == 421


def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    client = server(tmp_path, body_bytes=1000)
    answer = client.post("/api/jobs", content=b"x" * 1001)
    assert (answer.status_code, answer.json()["error"]) == (413, "the request is larger than 1,000 bytes.")


def test_a_body_of_unknown_length_is_cut_off(tmp_path):
    def endless():
        for _ in range(100):
            yield b"x" * 100

    answer = server(tmp_path, body_bytes=1000).post("/api/jobs", content=endless())
    assert (answer.status_code, answer.json()["error"]) == (413, "the request is too large.")


def test_a_body_that_does_not_arrive_is_given_up_and_makes_room(tmp_path):
    app = create_app(Settings(cache=tmp_path, static=tmp_path / "none", requests=1, body_seconds=0.01))
    headers = [(b"host", b"127.0.0.1"), (b"content-length", b"10"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/jobs",
        "raw_path": b"/api/jobs",
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 0),
    }
    said = []

    async def never():
        if not said:
            await anyio.sleep_forever()
        return {"type": "http.disconnect"}

    async def send(message):
        said.append(message)

    finished(app(scope, never, send))
    assert [message.get("status") for message in said] == [408, None]
    sentence = json.loads(said[1]["body"])["error"]
    assert sentence == "the request did not arrive within 0.01 seconds. Send it again."
    assert TestClient(app, base_url="http://127.0.0.1").get("/api/info").status_code == 200


@pytest.mark.parametrize("length", ["-1", "many", "99999999999999999999"])
def test_a_length_that_is_none_is_refused(tmp_path, length):
    answer = server(tmp_path).post("/api/jobs", content=b"x", headers={"Content-Length": length})
    assert answer.status_code == 413


def test_more_requests_than_fit_are_turned_away(tmp_path):
    app = create_app(Settings(cache=tmp_path, static=tmp_path / "none", requests=2))
    entered, leave = threading.Semaphore(0), threading.Event()

    @app.get("/api/slow")
    def slow() -> str:
        entered.release()
        leave.wait()
        return "done"

    with TestClient(app, base_url="http://127.0.0.1") as client:
        waiting = [threading.Thread(target=client.get, args=("/api/slow",)) for _ in range(2)]
        for thread in waiting:
            thread.start()
            entered.acquire()
        answer = client.get("/api/info")
        leave.set()
        for thread in waiting:
            thread.join()
        assert answer.status_code == 429
        assert answer.json()["error"] == "more than 2 requests at once. Wait a moment."
        assert client.get("/api/info").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/link.txt",
        "/%00",
    ],
)
def test_nothing_outside_the_page_s_folder_is_served(tmp_path, path):
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (static / "link.txt").symlink_to(tmp_path / "secret.txt")
    answer = server(tmp_path, static=static).get(path)
    assert answer.status_code in (400, 404)
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc", "%2fetc%2fpasswd", "odd.regard", "a" * 5000]
)
def test_a_recording_is_known_by_its_id_and_never_by_a_path(client, name):
    assert client.get(f"/api/recordings/{name}").status_code in (404, 405)


def test_every_answer_forbids_frames_sniffing_and_foreign_scripts(client):
    for answer in (
        client.get("/api/info"),
        client.get("/nothing"),
        client.get("/", headers={"Host": "evil"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "'unsafe-inline'" not in policy.split("style-src")[0]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


def test_a_fault_in_the_server_is_a_sentence_and_it_goes_on(tmp_path):
    app = create_app(Settings(cache=tmp_path, static=tmp_path / "none"))

    @app.get("/api/broken")
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    answer = client.get("/api/broken")
    assert answer.status_code == 500
    assert answer.json()["error"] == "the server failed here: ZeroDivisionError: by zero. It goes on running."
    assert client.get("/api/info").status_code == 200
