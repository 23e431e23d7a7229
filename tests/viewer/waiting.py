"""Waiting for work of the server, with no time limit: a machine may be slow."""

from __future__ import annotations

import time
from typing import Any

from regard.viewer.jobs import ENDED, Job

__all__ = ["ended", "finished"]


def finished(client: Any, job: str) -> dict[str, Any]:
    """What a job says when it has ended, asked over HTTP."""
    while (said := client.get(f"/api/jobs/{job}").json())["state"] not in ENDED:
        time.sleep(0.02)
    return said


def ended(job: Job) -> Job:
    """The job when it has ended."""
    seen = len(job.events)
    while job.state not in ENDED:
        job.wait(seen, 1.0)
        seen = len(job.events)
    return job
