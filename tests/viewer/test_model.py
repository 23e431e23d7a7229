"""What needs a model that runs: steps with the next token, cuts, recording and generating."""

from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

from regard.models import LoadedModel, bundled
from regard.viewer import Settings, create_app
from regard.viewer.making import cached_recording
from regard.viewer.session import Session
from tracing.test_adds_up import wrong
from viewer.samples import odd
from viewer.waiting import finished

TEXT = "The fox said to the hen: come out. The hen said to the fox: go away. The fox said to the"


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return LoadedModel(*bundled())


@pytest.fixture(scope="module")
def session(loaded, tmp_path_factory):
    made = Session(Settings(cache=tmp_path_factory.mktemp("cache")))
    made.shelf.put("bundled", loaded)
    made.library.add(cached_recording(loaded, TEXT, made.settings.cache), "fox")
    return made


@pytest.fixture(scope="module")
def client(session):
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def base(client) -> str:
    return f"/api/recordings/{client.get('/api/recordings').json()['default']}"


@pytest.fixture(scope="module")
def recording(session):
    return session.library.entries()[0][0].recording


def named(said: dict, name: str) -> dict:
    return next(one for one in said["steps"] if one["name"] == name)


def test_a_recording_of_a_model_at_hand_is_live(client, base):
    said = client.get(base).json()
    assert (said["live"], said["model"], said["kind"]) == (True, "bundled", "SmolLM3ForCausalLM")
    assert (said["stacks"][0]["heads"], said["stacks"][0]["kv_heads"]) == (6, 2)


def test_steps_walk_from_tokens_to_the_next_token_with_the_model_s_numbers(client, base, recording, loaded):
    last = len(recording.tokens) - 1
    said = client.get(f"{base}/stacks/decoder/layers/5/heads/1/steps?query={last}").json()
    assert [one["name"] for one in said["steps"]] == [
        *(
            "tokens",
            "projections",
            "scores",
            "scaled",
            "masked",
            "weights",
            "mix",
            "parallel",
            "heads",
            "next",
        ),
    ]
    row = recording.maps[5][0, 1, last]
    torch.testing.assert_close(
        torch.tensor(named(said, "weights")["parts"][0]["data"][0]), row[said["keys"]], rtol=1e-4, atol=1e-6
    )
    assert said["more"] == 0
    output = named(said, "mix")["parts"][2]
    layer = recording.layers[5]
    v = layer.segments[0].v[0, 0]
    torch.testing.assert_close(torch.tensor(output["data"][0]), row @ v, rtol=1e-4, atol=1e-5)
    assert output["shape"] == [1, 64]
    with torch.no_grad():
        logits = loaded.model(recording.token_ids["decoder"]).logits[0, -1]
    best = logits.softmax(-1).max()
    assert said["next"][0]["probability"] == pytest.approx(float(best), rel=1e-4)
    assert said["next"][0]["token"] == loaded.tokenizer.decode([int(logits.argmax())])


def test_scores_scale_and_mask_follow_one_another(client, base):
    said = client.get(f"{base}/stacks/decoder/layers/2/heads/3/steps?query=6").json()
    scores, scaled, masked = (
        torch.tensor([x if x is not None else -torch.inf for x in named(said, name)["parts"][0]["data"][0]])
        for name in ("scores", "scaled", "masked")
    )
    torch.testing.assert_close(scaled, scores * said["scale"], rtol=1e-4, atol=1e-5)
    seen = torch.tensor(said["keys"]) <= 6
    torch.testing.assert_close(masked[seen], scaled[seen], rtol=1e-4, atol=1e-4)
    assert bool((masked[~seen] == -torch.inf).all())
    assert said["visible"] == 7


@pytest.mark.parametrize("question", ["", "temperature=0.5", "scaled=false"])
def test_every_shown_number_is_worked_out_and_adds_up(client, base, question):
    said = client.get(f"{base}/stacks/decoder/layers/5/heads/2/steps?query=12&{question}").json()
    for name in ("scores", "scaled", "masked", "weights"):
        part = named(said, name)["parts"][0]
        [lines] = part["worked"]
        assert len(lines) == len(part["columns"])
        assert wrong("\n".join(f"→ {line}" for line in lines)) == []
    assert sum("≈" in line for line in lines) == sum(key <= 12 for key in said["keys"])
    assert all("exactly 0" in line for line, key in zip(lines, said["keys"], strict=True) if key > 12)


@pytest.mark.parametrize(("temperature", "scaled"), [(0.5, True), (3.0, True), (1.0, False), (2.0, False)])
def test_temperature_and_scale_are_recomputed_by_the_textbook(client, base, recording, temperature, scaled):
    question = f"query=9&temperature={temperature}&scaled={scaled}"
    said = client.get(f"{base}/stacks/decoder/layers/0/heads/2/steps?{question}").json()
    scores = recording.maps[0].scores((0, 2, 9)).double()
    scores = scores / temperature / (1 if scaled else said["scale"])
    torch.testing.assert_close(
        torch.tensor(named(said, "weights")["parts"][0]["data"][0]),
        scores.softmax(-1)[said["keys"]].float(),
        rtol=1e-3,
        atol=1e-6,
    )


def test_a_long_row_shows_its_heaviest_keys_and_its_neighbours(tmp_path):
    session = Session(Settings(cache=tmp_path))
    entry = session.library.add(odd(), "odd")
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as client:
        said = client.get(
            f"/api/recordings/{entry.id}/stacks/decoder/layers/0/heads/1/steps?query=650"
        ).json()
        row = entry.recording.maps[0][0, 1, 650]
        assert set(row.topk(64).indices.tolist()) <= set(said["keys"])
        assert set(range(646, 655)) <= set(said["keys"])
        assert said["more"] == 651 - sum(key <= 650 for key in said["keys"])
        assert said["next"] == []
        cross = client.get(f"/api/recordings/{entry.id}/stacks/cross/layers/0/heads/1/steps?query=62")
        assert cross.json()["visible"] == 301


def test_a_query_that_is_not_there_has_no_steps(client, base):
    answer = client.get(f"{base}/stacks/decoder/layers/0/heads/0/steps?query=9999")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("query 9999 is out of range")


def test_a_text_is_recorded_and_shown(client):
    job = client.post("/api/jobs", json={"kind": "record", "text": "The cat <b>sat</b> down."}).json()["id"]
    said = finished(client, job)
    assert (said["state"], said["error"]) == ("done", None)
    found = client.get(f"/api/recordings/{said['result']['recording']}").json()
    assert found["name"] == "The cat <b>sat</b> down."
    assert found["live"]
    tokens = client.get(f"/api/recordings/{said['result']['recording']}/tokens").json()
    assert tokens["text"] == "The cat <b>sat</b> down."


def test_a_text_beyond_the_context_can_be_refused_with_its_length(client):
    wanted = {"kind": "record", "text": "word " * 70_000, "too_long": "refuse"}
    job = client.post("/api/jobs", json=wanted).json()["id"]
    said = finished(client, job)
    assert said["state"] == "failed"
    assert "the model reads at most 65536" in said["error"]


def test_generation_tells_of_every_token_and_is_a_recording(client, session, loaded):
    wanted = {"kind": "generate", "text": TEXT, "new_tokens": 5, "temperature": 0}
    job = client.post("/api/jobs", json=wanted).json()["id"]
    said = finished(client, job)
    assert said["state"] == "done", said
    told = [event for event in session.jobs.get(job).events if event]
    ids = loaded.tokenizer(TEXT, return_tensors="pt")
    greedy = loaded.model.generate(**ids, max_new_tokens=5, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert [event["token"] for event in told] == [loaded.tokenizer.decode([i]) for i in greedy.tolist()]
    assert all(len(event["top"]) == 8 for event in told)
    assert sum(one["weight"] for one in told[-1]["attended"]) <= 1
    found = client.get(f"/api/recordings/{said['result']['recording']}").json()
    assert found["tokens"] == ids["input_ids"].shape[1] + 5
    last = {"query": found["tokens"] - 1, "key": 0}
    path = f"/api/recordings/{found['id']}/stacks/decoder/layers/0/heads/0/cell"
    assert client.get(path, params=last).json()["visible"]
    tokens = client.get(f"/api/recordings/{found['id']}/tokens").json()
    assert tokens["text"].startswith(TEXT)
    added = [tokens["text"][tokens["starts"][i] : tokens["stops"][i]] for i in range(-5, 0)]
    assert added == [event["token"] for event in told]
    heaviest = told[-1]["attended"][0]
    assert heaviest["token"] == loaded.tokenizer.decode([tokens["ids"][heaviest["key"]]])


def test_cutting_a_head_changes_what_comes_next(client, base, recording, loaded):
    pytest.importorskip("regard.atlas")
    from regard.atlas import knockout

    answer = client.post(f"{base}/knockout", json={"heads": [[5, 0], [5, 1]], "at": -1})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    wanted = knockout(loaded.model, recording.token_ids["decoder"][0], heads=[(5, 0), (5, 1)])
    assert said["kl"] == pytest.approx(wanted.kl, rel=1e-3)
    assert [one["id"] for one in said["before"]] == [one["id"] for one in said["after"]]
    assert said["before"][0]["probability"] == pytest.approx(wanted.before[0].before, rel=1e-3)
    assert said["loss_change"] == pytest.approx(wanted.loss_change, rel=1e-3)


def test_many_things_are_cut_at_once_and_a_job_answers_the_same(client, base, recording, loaded):
    from regard.atlas import Edge, knockout

    asked = {
        "heads": [[5, 0]],
        "edges": [{"layer": 2}, {"layer": [0, 1], "query": [9, 10], "key": [1, 2, 3]}],
        "keys": [4],
        "at": 10,
        "instead": "mean",
    }
    said = client.post(f"{base}/knockout", json=asked).json()
    edges = [Edge(2), Edge([0, 1], None, [9, 10], [1, 2, 3])]
    wanted = knockout(
        loaded.model,
        recording.token_ids["decoder"][0],
        heads=[(5, 0)],
        edges=edges,
        keys=4,
        at=10,
        instead="mean",
    )
    assert said["kl"] == pytest.approx(wanted.kl, rel=1e-3)
    name = base.rsplit("/", 1)[1]
    job = client.post("/api/jobs", json={"kind": "knockout", "recording": name, **asked}).json()["id"]
    done = finished(client, job)
    assert (done["state"], done["done"]) == ("done", done["total"])
    assert done["result"]["knockout"]["kl"] == pytest.approx(said["kl"], rel=1e-6)


def test_of_a_long_text_the_model_reads_no_more_than_it_must(client, base, monkeypatch):
    asked = {"heads": [[5, 0]], "keys": [3, 20], "at": 12}
    whole = client.post(f"{base}/knockout", json=asked).json()
    monkeypatch.setattr("regard.viewer.causes.LONG", 10)
    part = client.post(f"{base}/knockout", json=asked).json()
    assert part["tokens"] == 13 < whole["tokens"]
    assert part["kl"] == pytest.approx(whole["kl"], rel=1e-3)


def test_a_cut_of_nothing_or_of_what_is_not_there_is_refused(client, base):
    pytest.importorskip("regard.atlas")
    assert client.post(f"{base}/knockout", json={}).json()["error"].startswith("nothing was given to cut")
    assert client.post(f"{base}/knockout", json={"heads": [[99, 0]]}).status_code == 404


def test_a_cut_without_the_model_says_how_to_have_it(tmp_path):
    session = Session(Settings(cache=tmp_path))
    entry = session.library.add(odd(), "odd")
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as client:
        answer = client.post(f"/api/recordings/{entry.id}/knockout", json={"heads": [[0, 0]]})
        assert answer.status_code == 409
        assert answer.json()["error"] == (
            "the model 'somewhere/random' is not loaded. Start regard view with --model to run it again."
        )


def test_the_atlas_is_a_job_first_and_then_an_answer(client, base, session):
    pytest.importorskip("regard.atlas")
    answer = client.get(f"{base}/atlas")
    assert answer.status_code == 202
    said = finished(client, answer.json()["job"])
    assert said["state"] == "done", said
    found = client.get(f"{base}/atlas").json()
    assert len(found["heads"]) == 54
    assert {"role", "layer", "head", "kinds", "statistics"} <= set(found["heads"][0])
    assert set(found["heads"][0]["kinds"]) <= set(found["kinds"])


def test_a_recording_is_made_once_for_each_text(session, loaded):
    first = cached_recording(loaded, "One text.", session.settings.cache)
    before = (first / "manifest.json").stat().st_mtime_ns
    assert cached_recording(loaded, "One text.", session.settings.cache) == first
    assert (first / "manifest.json").stat().st_mtime_ns == before
    assert cached_recording(loaded, "Another text.", session.settings.cache) != first
