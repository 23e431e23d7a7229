"""What the server says of recordings and tokens, and what it says when they go."""

from __future__ import annotations

import shutil

import pytest
from fastapi.testclient import TestClient

import regard
from regard.masks import Causal
from regard.viewer import Settings, create_app
from regard.viewer.session import Session
from viewer.samples import TOKENS, layer, odd, recording, saved


def server(path, tmp_path):
    settings = Settings((path,), cache=tmp_path / "cache")
    return TestClient(create_app(settings), base_url="http://127.0.0.1")


def test_the_list_names_every_recording_of_a_folder(client):
    said = client.get("/api/recordings").json()
    (line,) = said["recordings"]
    assert said["default"] == line["id"]
    assert line["id"].startswith("odd-")
    assert (line["name"], line["model"], line["tokens"]) == ("odd.regard", "random", 701)
    assert line["stacks"] == ["decoder", "cross"]


def test_a_recording_says_what_its_stacks_are(client, base):
    said = client.get(base).json()
    decoder, cross = said["stacks"]
    assert (decoder["layers"], decoder["heads"], decoder["kv_heads"]) == ([0, 1, 2], 4, 2)
    assert decoder["windows"] == {"0": None, "1": 65, "2": None}
    assert (decoder["causal"], cross["causal"]) == (True, False)
    assert (cross["queries"], cross["keys"], cross["kv_heads"]) == (63, 301, 4)
    assert (said["kind"], said["complete"], said["live"]) == ("Random", True, False)


def test_a_character_of_several_tokens_is_shown_once(tmp_path):
    from regard.models import bundled, record

    record(bundled(), "A 😀 and é.", store=tmp_path / "x.regard")
    with server(tmp_path / "x.regard", tmp_path) as client:
        name = client.get("/api/recordings").json()["default"]
        said = client.get(f"/api/recordings/{name}/tokens").json()
    shown = [said["text"][a:b] for a, b in zip(said["starts"], said["stops"], strict=True)]
    assert "".join(shown) == "A 😀 and é."
    assert "".join(said["pieces"]).count("😀") == 1
    assert said["pieces"].count("⋯") >= 3


def test_document_starts_are_those_of_the_mask(tmp_path):
    from regard.masks import Documents

    made = recording(layer(0, 9, 9, Causal() & Documents(lengths=[2, 3, 4])))
    with server(saved(made, tmp_path / "x.regard"), tmp_path) as client:
        name = client.get("/api/recordings").json()["default"]
        assert client.get(f"/api/recordings/{name}").json()["stacks"][0]["documents"] == [0, 2, 5]


def test_tokens_come_as_text_and_are_never_made_html(client, base):
    answer = client.get(f"{base}/tokens")
    said = answer.json()
    assert said["pieces"][:5] == TOKENS
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert said["text"][said["starts"][2] : said["stops"][2]] == TOKENS[2]


def test_tokens_without_a_tokenizer_are_called_by_their_place(tmp_path):
    made = recording(layer(0, 3, 3, Causal()), text=False)
    with server(saved(made, tmp_path / "x.regard"), tmp_path) as client:
        name = client.get("/api/recordings").json()["default"]
        said = client.get(f"/api/recordings/{name}/tokens").json()
        assert (said["pieces"], said["text"], said["ids"]) == (["0", "1", "2"], "", [-1, -1, -1])


def test_a_recording_in_memory_is_shown_like_one_on_disk(tmp_path):
    session = Session(Settings(cache=tmp_path))
    entry = session.library.add(odd(), "in memory")
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as client:
        path = f"/api/recordings/{entry.id}"
        assert client.get(path).json()["stacks"][1]["keys"] == 301
        cell = client.get(f"{path}/stacks/decoder/layers/0/heads/0/cell?query=1&key=1").json()
        assert 0 < cell["weight"] < 1


def test_an_unknown_recording_is_404_with_a_sentence(client):
    answer = client.get("/api/recordings/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"] == "no recording has the id 'nothing'. Choose one from the list."


def test_a_recording_that_disappears_is_a_sentence_and_the_server_goes_on(tmp_path):
    path = saved(odd(), tmp_path / "all" / "gone.regard")
    saved(odd(), tmp_path / "all" / "stays.regard")
    with server(tmp_path / "all", tmp_path) as client:
        gone, stays = (line["id"] for line in client.get("/api/recordings").json()["recordings"])
        tile = "/stacks/decoder/layers/0/heads/0/tile?level=0&row=0&col=0"
        assert client.get(f"/api/recordings/{gone}{tile}").status_code == 200
        shutil.rmtree(path)
        answer = client.get(f"/api/recordings/{gone}{tile}")
        assert answer.status_code == 410
        assert answer.json()["error"] == "all/gone.regard was removed or recorded anew since it was opened."
        assert client.get(f"/api/recordings/{stays}{tile}").status_code == 200
        assert [line["id"] for line in client.get("/api/recordings").json()["recordings"]] == [stays]


def test_a_file_cut_short_under_the_server_is_a_sentence_and_no_crash(tmp_path):
    path = saved(odd(), tmp_path / "cut.regard")
    with server(path, tmp_path) as client:
        name = client.get("/api/recordings").json()["default"]
        base = f"/api/recordings/{name}/stacks/decoder/layers/0/heads/0"
        assert client.get(f"{base}/cell?query=5&key=3").status_code == 200
        file = next(path.glob("*-decoder-000-0.safetensors"))
        file.write_bytes(file.read_bytes()[:100])
        answer = client.get(f"{base}/cell?query=5&key=3")
        assert answer.status_code == 410
        assert "Record again." in answer.json()["error"]
        assert client.get("/api/info").json()["version"] == regard.__version__


def test_a_damaged_file_is_noticed_when_it_is_first_read(tmp_path):
    path = saved(odd(), tmp_path / "damaged.regard")
    file = next(path.glob("*-decoder-001-0.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with server(path, tmp_path) as client:
        name = client.get("/api/recordings").json()["default"]
        layers = f"/api/recordings/{name}/stacks/decoder/layers"
        answer = client.get(f"{layers}/1/heads/0/cell?query=5&key=3")
        assert answer.status_code == 410
        assert "is damaged: its checksum does not match the manifest" in answer.json()["error"]
        assert client.get(f"{layers}/0/heads/0/cell?query=5&key=3").status_code == 200


def test_a_damaged_manifest_is_listed_with_its_reason(tmp_path):
    path = saved(odd(), tmp_path / "bad.regard")
    (path / "manifest.json").write_text("{")
    with server(path, tmp_path) as client:
        said = client.get("/api/recordings").json()
        assert said["default"] is None
        assert "is damaged and cannot be read" in said["recordings"][0]["error"]


def test_a_recording_that_is_made_again_has_another_id(tmp_path):
    path = saved(odd(), tmp_path / "again.regard")
    with server(path, tmp_path) as client:
        first = client.get("/api/recordings").json()["default"]
        shutil.rmtree(path)
        saved(recording(layer(5, 65, 65, Causal())), path)
        second = client.get("/api/recordings").json()["default"]
        assert first != second
        assert client.get(f"/api/recordings/{first}").status_code == 410
        assert client.get(f"/api/recordings/{second}").json()["tokens"] == 65


def test_info_names_the_version_and_the_models(client):
    said = client.get("/api/info").json()
    assert said == {
        "version": regard.__version__,
        "models": [{"name": "bundled", "bundled": True}],
        "can_run_models": True,
    }


def test_a_page_that_was_not_built_says_what_to_run(tmp_path):
    settings = Settings(static=tmp_path / "nowhere", cache=tmp_path)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        answer = client.get("/")
        assert answer.status_code == 503
        assert "make frontend" in answer.text


def test_the_page_and_its_files_are_served(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>regard</title>")
    (tmp_path / "assets" / "main.js").write_text("1")
    settings = Settings(static=tmp_path, cache=tmp_path)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        assert "<title>regard" in client.get("/").text
        assert client.get("/assets/main.js").text == "1"
        assert client.get("/assets/none.js").status_code == 404


@pytest.mark.parametrize("name", ["cat", "three"])
def test_worked_examples_have_the_numbers_of_explain(client, name):
    from regard.tracing import example

    said = client.get(f"/api/worked/{name}").json()
    trace = example(name)
    assert [one["name"] for one in said["steps"]] == trace.names
    weights = next(one for one in said["steps"] if one["name"] == "weights")["parts"][0]
    assert weights["data"] == trace.weights.tolist()
    assert (weights["rows"], weights["columns"]) == (list(trace.tokens), list(trace.key_tokens))
    for row, lines in enumerate(weights["worked"]):
        assert lines[int(trace.weights[row].argmax())] in trace.to_text(query=row).replace("\n     ", " ")
        assert len(lines) == len(trace.key_tokens)


def test_hidden_cells_of_a_worked_example_are_null(client):
    said = client.get("/api/worked/cat").json()
    masked = next(one for one in said["steps"] if one["name"] == "masked")["parts"][0]["data"]
    assert masked[0][1:] == [None, None, None]


def test_an_unknown_example_is_refused(client):
    answer = client.get("/api/worked/dog")
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "no example is called 'dog'; there are 'cat', 'three'.",
    )
