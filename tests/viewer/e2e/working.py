"""Work that the server is asked for without a browser."""

from __future__ import annotations

from typing import Any

import httpx

from viewer.waiting import finished

__all__ = ["done", "recorded"]

TEXT = (
    "The old dog and the young dog went to the river. The old dog sat down in the shade, and the young dog "
    "ran into the water. Then the old dog said to the young dog that the water was cold, and the young dog"
)


def done(client: httpx.Client, job: str) -> dict[str, Any]:
    """What a job says that has done its work."""
    said = finished(client, job)
    assert said["state"] == "done", said["error"]
    return said


def recorded(client: httpx.Client) -> str:
    """A recording short enough for the model to run again, and for an atlas, in no time."""
    model = client.get("/api/info").json()["models"][0]["name"]
    job = client.post("/api/jobs", json={"kind": "record", "text": TEXT, "model": model}).json()["id"]
    return done(client, job)["result"]["recording"]
