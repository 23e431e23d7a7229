"""`regard view` as a process: it starts, says where it is, answers, and ends cleanly."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

import regard
from processes import checkout, python, started
from regard.errors import RegardError
from regard.viewer import create_app, opening
from regard.viewer.jobs import Jobs
from regard.viewer.serving import address_for_others, listen
from regard.viewer.session import Session
from regard.viewer.settings import Settings, cache_folder
from viewer.waiting import ended

SRC = Path(regard.__file__).parents[1]


@pytest.fixture
def view(tmp_path):
    """Starts `regard view` with arguments; gives the process and the address it printed."""
    running = ExitStack()

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "regard", "view", "--no-open", "--cache", tmp_path, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = running.enter_context(started(*command, env=checkout(PYTHONUNBUFFERED="1"), **pipes))
        said = process.stdout.readline()
        while said and "regard is at" not in said:
            said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, process.communicate()
        return process, found[0]

    with running:
        yield start


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way on Windows")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_process_serves_a_recording_and_ends_cleanly(view, odd_path, number):
    process, address = view(str(odd_path))
    said = httpx.get(f"{address}api/recordings", timeout=None).json()
    assert said["recordings"][0]["tokens"] == 701
    with httpx.stream("GET", f"{address}api/jobs/none/events", timeout=None):
        process.send_signal(number)
        _, err = process.communicate()
    assert (process.returncode in (0, -number), err) == (True, "")
    if number == signal.SIGINT:
        assert process.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address, timeout=None)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way on Windows")
def test_ctrl_c_while_the_model_loads_ends_cleanly(view):
    process, address = view()
    assert "<progress" in httpx.get(address, timeout=None).text
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_a_host_makes_a_token_that_the_address_carries(view, odd_path):
    _, address = view(str(odd_path), "--host", "0.0.0.0")
    base, token = address.split("?token=")
    assert len(token) >= 32
    assert httpx.get(f"{base}api/info", timeout=None).status_code == 401
    assert httpx.get(f"{base}api/info?token={token}", timeout=None).status_code == 200


def test_a_taken_port_is_replaced_by_a_free_one():
    said = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with listen(Settings(port=port), said.append) as found:
            assert found.getsockname()[1] != port
    assert said == [f"Port {port} is taken; using a free one."]


def test_an_address_that_is_not_ours_is_refused():
    with pytest.raises(RegardError, match=r"the server cannot listen on 192\.0\.2\.1: "):
        listen(Settings(host="192.0.2.1", port=7270))


def test_the_cache_lies_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "regard"


def test_importing_the_viewer_loads_no_server():
    code = "import regard.viewer, sys; print({'fastapi', 'uvicorn', 'transformers'} & set(sys.modules))"
    done = python("-c", code, check=True)
    assert done.stdout.strip() == "set()"


def test_what_a_user_names_is_checked_before_anything_heavy_is_imported(odd_path, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "text.txt").write_text("Once upon a time")
    code = (
        "import sys; from pathlib import Path; from regard.viewer import Settings\n"
        "from regard.viewer.opening import check\n"
        f"check(Settings((Path({str(odd_path)!r}),), {str(tmp_path)!r}), {str(tmp_path / 'text.txt')!r})\n"
        "print({'torch', 'fastapi', 'transformers'} & set(sys.modules))"
    )
    assert python("-c", code, check=True).stdout.strip() == "set()"


def test_a_text_from_a_pipe_is_read_once(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(sys, "stdin", io.StringIO("Once upon a time"))
    monkeypatch.setattr(opening, "serve", lambda settings, make, **_: make(print))
    monkeypatch.setattr(opening, "prepared", lambda settings, text, *_, **__: seen.append(text))
    with pytest.raises(AttributeError, match="shelf"):  # there is no session to load its model
        opening.open_viewer(Settings(cache=tmp_path), "-")
    assert seen == ["Once upon a time"]


def test_a_server_that_listens_everywhere_names_an_address_that_others_can_use():
    told = address_for_others(Settings(host="0.0.0.0", port=81, token="x"))
    assert re.fullmatch(r"http://[^/:]+:81/\?token=x", told)
    assert "0.0.0.0" not in told
    assert address_for_others(Settings(host="127.0.0.1", port=81)) is None


def test_messages_name_no_folder_of_this_machine(tmp_path):
    shelf = tmp_path / "a shelf"
    broken = shelf / "broken.regard"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{")
    settings = Settings((shelf,), cache=tmp_path / "cache")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        (listed,) = client.get("/api/recordings").json()["recordings"]
        assert "broken.regard" in listed["error"]
        assert str(tmp_path) not in listed["error"]
    jobs = Jobs(settings.without_folders)

    def fails(job):
        raise RegardError(f"{broken} cannot be read.")

    assert ended(jobs.start("x", fails)).error == "a shelf/broken.regard cannot be read."
    jobs.close()


@pytest.mark.skipif(os.name == "nt", reason="a process cannot be asked there whether it lives")
def test_a_new_server_removes_the_folders_of_one_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    left = tmp_path / f"regard-viewer-{gone.pid}-abc"
    kept = tmp_path / f"regard-viewer-{os.getppid()}-abc"
    other = tmp_path / "regard-viewer-notes-abc"
    for folder in (left, kept, other):
        folder.mkdir()
        (folder / "x").write_text("x")
    session = Session(Settings(cache=tmp_path / "cache"))
    assert session.scratch.is_dir()
    assert [folder.exists() for folder in (left, kept, other)] == [False, True, True]
    session.close()
    assert not session.scratch.exists()


def test_of_two_servers_that_start_at_once_each_has_a_port_of_its_own():
    said = []
    with listen(Settings()) as first:
        taken = first.getsockname()[1]
        with listen(Settings(port=taken), said.append) as second:
            assert second.getsockname()[1] != taken
    assert said == [f"Port {taken} is taken; using a free one."]
