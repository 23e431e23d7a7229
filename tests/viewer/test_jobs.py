"""Long work: progress, cancelling, one job at a time, and jobs that end with their page."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
import torch

from loops import finished
from regard.atlas.survey import cards_of
from regard.atlas.tally import tally_of
from regard.errors import RegardError
from regard.models import bundled, watch
from regard.viewer import Settings
from regard.viewer.jobs import ENDED, Job, Jobs
from regard.viewer.routes.work import _told
from regard.viewer.session import Session
from viewer.serving import served
from viewer.waiting import ended


@pytest.fixture
def jobs():
    found = Jobs()
    yield found
    found.close()


def forever(job):
    while True:
        job.progress(1, 10_000)
        time.sleep(0.005)


def test_a_job_says_how_far_it_is_and_how_long_it_takes(jobs, monkeypatch):
    halfway, go_on, now = threading.Event(), threading.Event(), [100.0]
    monkeypatch.setattr("regard.viewer.jobs.time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(job):
        now[0] += 3.0
        job.progress(6, 10)
        halfway.set()
        go_on.wait()
        return {"answer": 42}

    job = jobs.start("count", work)
    halfway.wait()
    said = job.to_dict()
    assert (said["state"], said["done"], said["total"]) == ("running", 6, 10)
    assert said["seconds_left"] == pytest.approx(2.0)
    assert said["seconds"] == pytest.approx(3.0)
    go_on.set()
    said = ended(job).to_dict()
    assert (said["state"], said["done"], said["result"], said["seconds_left"]) == (
        "done",
        10,
        {"answer": 42},
        0.0,
    )


def test_a_cancelled_job_ends_at_its_next_step(jobs):
    job = jobs.start("forever", forever)
    while job.state == "waiting":
        job.wait(0, 1.0)
    job.cancel()
    assert ended(job).state == "cancelled"


def test_a_cancelled_atlas_ends_within_a_layer(tmp_path, monkeypatch):
    model, _ = bundled()
    with watch(model, layers=[5]) as recording, torch.no_grad():
        model(torch.arange(3, 300)[None], logits_to_keep=1)
    session = Session(Settings(cache=tmp_path))
    entry = session.library.add(recording, "one layer")
    begun, cancelled, layers = threading.Event(), threading.Event(), []

    def slow(*given):
        begun.set()
        cancelled.wait()
        return tally_of(*given)

    def surveyed(*given):
        layers.append(cards_of(*given))
        return layers[-1]

    monkeypatch.setattr("regard.atlas.survey.tally_of", slow)
    monkeypatch.setattr("regard.atlas.survey.cards_of", surveyed)
    job = session.start_atlas(entry, bound=False)
    assert begun.wait(120), job.error
    job.cancel()
    cancelled.set()
    assert ended(job).state == "cancelled"
    assert layers == []
    session.close()


def test_jobs_run_one_at_a_time_and_a_waiting_one_can_be_cancelled(jobs):
    first, second = jobs.start("forever", forever), jobs.start("second", lambda job: {})
    assert second.state == "waiting"
    second.cancel()
    assert second.state == "cancelled"
    first.cancel()
    third = jobs.start("third", lambda job: {})
    assert ended(third).state == "done"
    assert second.state == "cancelled"


def test_the_same_work_is_not_queued_twice(jobs):
    first = jobs.start("forever", forever, key="same")
    assert jobs.start("forever", forever, key="same") is first
    first.cancel()
    ended(first)
    again = jobs.start("again", lambda job: {}, key="same")
    assert again is not first


def test_work_that_is_being_cancelled_is_begun_anew_for_who_asks_then(jobs):
    go_on = threading.Event()

    def slow(job):
        go_on.wait()
        job.progress(1, 2)
        return {}

    first = jobs.start("slow", slow, key="same")
    while first.state == "waiting":
        first.wait(0, 1.0)
    first.cancel()
    again = jobs.start("slow", slow, key="same")
    go_on.set()
    assert (ended(first).state, ended(again).state) == ("cancelled", "done")


def test_a_failing_job_says_why_and_the_next_one_runs(jobs, caplog):
    def refuse(job):
        raise RegardError("the text is empty; give at least one word.")

    refused = ended(jobs.start("record", refuse))
    assert (refused.state, refused.error) == ("failed", "the text is empty; give at least one word.")
    broken = ended(jobs.start("record", lambda job: 1 / 0))
    assert broken.error == "record failed: ZeroDivisionError: division by zero."
    assert ended(jobs.start("fine", lambda job: {})).state == "done"


def test_too_many_waiting_jobs_are_refused(jobs):
    for _ in range(16):
        jobs.start("forever", forever)
    with pytest.raises(
        RegardError, match=r"16 jobs are waiting already. Cancel one, or wait for one to end."
    ):
        jobs.start("forever", forever)


def test_old_jobs_are_forgotten(jobs):
    first = ended(jobs.start("first", lambda job: {}))
    for _ in range(70):
        ended(jobs.start("more", lambda job: {}))
    with pytest.raises(KeyError, match="it may have ended long ago"):
        jobs.get(first.id)


@pytest.fixture
def live(tmp_path):
    """A real server in a thread: streams that break off need a real connection."""
    session = Session(Settings(cache=tmp_path))
    with served(session) as address, httpx.Client(base_url=address, timeout=None) as client:
        yield session, client


def told(lines):
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_events_tell_progress_and_everything_said_until_the_end(live):
    session, client = live

    def work(job):
        for number in range(3):
            job.tell({"token": f"t{number}"})
            job.progress(number + 1, 3)
        return {"recording": "x"}

    job = session.jobs.start("generate", work)
    with client.stream("GET", f"/api/jobs/{job.id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = told(answer.iter_lines())
    assert [event["token"] for event in events if "token" in event] == ["t0", "t1", "t2"]
    assert (events[-1]["state"], events[-1]["done"], events[-1]["result"]) == ("done", 3, {"recording": "x"})


def test_who_hears_of_the_end_has_heard_everything(live):
    """A page stops listening when it hears of the end: also one that came late."""
    session, client = live

    def work(job):
        for number in range(3):
            job.tell({"token": f"t{number}"})
        return {}

    job = ended(session.jobs.start("generate", work))
    with client.stream("GET", f"/api/jobs/{job.id}/events") as answer:
        events = told(answer.iter_lines())
    assert [event.get("token") for event in events] == ["t0", "t1", "t2", None]
    assert [event["state"] in ENDED for event in events] == [False, False, False, True]


def test_a_job_that_ends_while_it_is_listened_to_is_heard_to_the_end():
    job = Job("generate", lambda job: {})

    async def listen():
        stream = _told(job)
        heard = [await anext(stream)]
        job.tell({"token": "a"})
        job.tell({"token": "b"})
        heard.append(await anext(stream))
        # The rest is said while the first is on its way.
        job.tell({"token": "c"})
        job.run()
        return heard + [event async for event in stream]

    events = told(line.strip() for line in finished(listen()))
    assert [event["token"] for event in events if "token" in event] == ["a", "b", "c"]
    assert [event["state"] in ENDED for event in events] == [False] * (len(events) - 1) + [True]


@pytest.mark.parametrize(("bound", "state"), [(True, "cancelled"), (False, "running")])
def test_closing_the_page_ends_the_jobs_that_are_bound_to_it(live, bound, state):
    session, client = live
    job = session.jobs.start("forever", forever, bound=bound)
    with client.stream("GET", f"/api/jobs/{job.id}/events") as answer:
        next(answer.iter_lines())
    while job._listeners:
        time.sleep(0.01)
    assert (ended(job) if bound else job).state == state
    assert client.get(f"/api/jobs/{job.id}").json()["abandoned"] == bound
    job.cancel()


def test_a_job_can_be_looked_at_and_cancelled_over_http(live):
    session, client = live
    job = session.jobs.start("forever", forever)
    assert client.get(f"/api/jobs/{job.id}").json()["kind"] == "forever"
    client.delete(f"/api/jobs/{job.id}")
    assert ended(job).state == "cancelled"
    missing = client.get("/api/jobs/none")
    assert (missing.status_code, missing.json()["error"]) == (
        404,
        "no job has the id 'none'; it may have ended long ago.",
    )


@pytest.mark.parametrize(
    ("wanted", "status", "text"),
    [
        (
            {"kind": "record", "text": "x", "model": "gpt-9"},
            404,
            "no model is called 'gpt-9'; there are 'bundled'.",
        ),
        (
            {"kind": "pyramid", "recording": "none"},
            404,
            "no recording has the id 'none'. Choose one from the list.",
        ),
        ({"kind": "record", "text": ""}, 422, "record.text: String should have at least 1 character."),
        (
            {"kind": "generate", "text": "x", "new_tokens": 0},
            422,
            "generate.new_tokens: Input should be greater than or equal to 1.",
        ),
    ],
)
def test_impossible_jobs_are_refused_when_they_are_asked_for(client, wanted, status, text):
    answer = client.post("/api/jobs", json=wanted)
    assert (answer.status_code, answer.json()["error"]) == (status, text)
