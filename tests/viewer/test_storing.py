"""Recordings as files: kept under a name, saved as one file, opened from one; nothing else gets in."""

from __future__ import annotations

import io
import zipfile

import pytest
from fastapi.testclient import TestClient

from regard import Causal
from regard.errors import RegardError
from regard.models import Recording
from regard.viewer import Settings, create_app
from regard.viewer.session import Session
from regard.viewer.storing import Upload, file_name
from viewer.samples import layer, recording, saved


@pytest.fixture
def client(tmp_path):
    made = saved(recording(layer(0, 65, 65, Causal())), tmp_path / "shelf" / "one.regard")
    with TestClient(
        create_app(Settings((made,), cache=tmp_path / "cache")), base_url="http://127.0.0.1"
    ) as found:
        yield found


def listed(client) -> dict[str, str]:
    return {one["name"]: one["id"] for one in client.get("/api/recordings").json()["recordings"]}


def weights(client, name):
    return client.get(f"/api/recordings/{name}/stacks/decoder/layers/0/heads/1/weights?query=60").content


def test_a_recording_is_kept_under_its_name_and_there_again_next_time(client, tmp_path):
    first = listed(client)["one.regard"]
    answer = client.post(f"/api/recordings/{first}/keep", json={"name": "Ünïcode / <b>"})
    kept = answer.json()["recording"]
    assert weights(client, kept) == weights(client, first)
    assert client.get(f"/api/recordings/{kept}").json()["storing"] == "kept"
    again = Session(Settings(cache=tmp_path / "cache"))
    assert [one.name for one in again.library.entries()[0]] == ["Ünïcode - -b-"]
    client.post(f"/api/recordings/{first}/keep", json={"name": "Ünïcode / <b>"})
    same = client.post(f"/api/recordings/{first}/keep", json={"name": "one"}).json()["recording"]
    assert same != first
    client.delete(f"/api/recordings/{same}")
    assert sorted(listed(client)) == ["one.regard", "Ünïcode - -b-", "Ünïcode - -b- 2"]
    assert client.delete(f"/api/recordings/{kept}").status_code == 200
    assert sorted(listed(client)) == ["one.regard", "Ünïcode - -b- 2"]
    refused = client.delete(f"/api/recordings/{first}")
    assert (refused.status_code, "is not kept here" in refused.json()["error"]) == (409, True)


def arrives(client, files: dict[str, bytes], step: int = 1 << 20) -> str:
    upload = client.post("/api/uploads").json()["id"]
    for name, data in files.items():
        for at in range(0, len(data), step):
            answer = client.put(f"/api/uploads/{upload}/{name}?at={at}", content=data[at : at + step])
            assert answer.status_code == 204, answer.text
    return upload


def test_a_saved_file_opens_again_with_the_same_weights(client):
    first = listed(client)["one.regard"]
    answer = client.get(f"/api/recordings/{first}/file")
    assert answer.headers["content-disposition"].endswith("one.regard.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
    upload = arrives(client, {"upload.zip": answer.content}, step=5000)
    opened = client.post(f"/api/uploads/{upload}", json={"name": "opened"}).json()["recording"]
    assert weights(client, opened) == weights(client, first)
    before = listed(client)
    upload = arrives(client, {"upload.zip": answer.content})
    again = client.post(f"/api/uploads/{upload}", json={"name": "one"}).json()["recording"]
    assert (again, listed(client)) == (first, before)


def test_the_files_of_a_folder_open_too_and_a_missing_one_is_said(client, tmp_path):
    files = {file.name: file.read_bytes() for file in (tmp_path / "shelf" / "one.regard").iterdir()}
    upload = arrives(client, files)
    opened = client.post(f"/api/uploads/{upload}", json={"name": "opened"}).json()["recording"]
    assert weights(client, opened) == weights(client, listed(client)["one.regard"])
    files.pop(next(name for name in files if name.endswith(".safetensors")))
    upload = arrives(client, files)
    refused = client.post(f"/api/uploads/{upload}", json={"name": "half"})
    assert refused.status_code == 410
    assert "half" not in listed(client)
    assert client.post(f"/api/uploads/{upload}", json={"name": "half"}).status_code == 404


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fx.json", "x.py", ".hidden.json", "a b.json", "x.json%00"])
def test_no_other_file_gets_in(client, name):
    upload = client.post("/api/uploads").json()["id"]
    assert client.put(f"/api/uploads/{upload}/{name}", content=b"{}").status_code in (400, 404, 405)


def packed(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no zip", "cannot be unpacked"),
        (packed(**{"..__..__x.json": b"{}"}), "which no recording has"),
        (packed(**{"a__b__x.json": b"{}"}), "which no recording has"),
        (packed(**{"a__x.sh": b"{}"}), "no file of a recording"),
        (packed(**{"a__x.json": b"{}", "b__x.json": b"{}"}), "twice"),
        (packed(**{"x.json": bytes(1 << 24)}), "far more than it holds"),
    ],
)
def test_a_bad_archive_is_refused_with_a_sentence(tmp_path, data, said):
    upload = Upload(tmp_path / "new", 1 << 30)
    upload.write("upload.zip", 0, data)
    with pytest.raises(RegardError, match=said):
        upload.finish()
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_an_upload_stays_within_its_size_and_its_order(tmp_path):
    upload = Upload(tmp_path / "new", 100)
    upload.write("manifest.json", 0, bytes(60))
    with pytest.raises(RegardError, match="has 60 bytes so far"):
        upload.write("manifest.json", 0, bytes(10))
    with pytest.raises(RegardError, match="larger than 100 bytes"):
        upload.write("manifest.json", 60, bytes(60))


def test_a_server_for_other_machines_neither_keeps_nor_takes(tmp_path):
    made = saved(recording(layer(0, 5, 5, Causal())), tmp_path / "one.regard")
    settings = Settings((made,), cache=tmp_path / "cache", host="0.0.0.0", token="t")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        client.cookies.set("regard_token", "t")
        name = listed(client)["one.regard"]
        assert client.get(f"/api/recordings/{name}").json()["storing"] == "no"
        assert client.post("/api/uploads").status_code == 403
        assert client.post(f"/api/recordings/{name}/keep", json={"name": "x"}).status_code == 403
        assert client.get(f"/api/recordings/{name}/file").status_code == 200


def test_a_recording_in_memory_can_be_saved_and_kept(tmp_path):
    session = Session(Settings(cache=tmp_path))
    entry = session.library.add(recording(layer(0, 9, 9, Causal())), "in memory")
    kept = session.kept(entry, "on disk")
    assert Recording.open(kept.path).layers[0].rows == 9
    assert [one.name for one in session.library.entries()[0]] == ["on disk"]
    session.close()


@pytest.mark.parametrize(("name", "plain"), [("..", "recording"), ("a/../b", "a-..-b"), ("CON ", "CON")])
def test_names_are_safe_for_a_disk(name, plain):
    assert file_name(name) == plain
