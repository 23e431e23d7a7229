"""Work that the server is asked for without a browser."""

from __future__ import annotations

import time
from typing import Any

import httpx

__all__ = ["finished", "recorded"]

TEXT = (
    "The old dog and the young dog went to the river. The old dog sat down in the shade, and the young dog "
    "ran into the water. Then the old dog said to the young dog that the water was cold, and the young dog"
)


def finished(client: httpx.Client, job: str, seconds: float = 60) -> dict[str, Any]:
    """What a job says when it has ended."""
    end = time.monotonic() + seconds
    while (said := client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
        assert time.monotonic() < end, f"the job {said['kind']} took more than {seconds} s"
        time.sleep(0.05)
    assert said["state"] == "done", said["error"]
    return said


def recorded(client: httpx.Client) -> str:
    """A recording short enough for the model to run again, and for an atlas, in no time."""
    model = client.get("/api/info").json()["models"][0]["name"]
    job = client.post("/api/jobs", json={"kind": "record", "text": TEXT, "model": model}).json()["id"]
    return finished(client, job)["result"]["recording"]
