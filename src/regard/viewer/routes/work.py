"""Long work: starting it, following it, ending it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Body, Depends, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from regard.viewer.answers import JobList, JobState, Started
from regard.viewer.jobs import ENDED, Job
from regard.viewer.routes.common import PROBLEMS, SessionDep, found
from regard.viewer.routes.recordings import KnockoutRequest
from regard.viewer.session import Session

__all__ = ["router"]

router = APIRouter(prefix="/api/jobs", responses=PROBLEMS, tags=["jobs"])

# Seconds between checks of a job, and between keep-alive messages to a browser.
LOOK, ALIVE = 0.05, 10.0


class RecordJob(BaseModel):
    """Record a text with a model."""

    kind: Literal["record"]
    text: str = Field(min_length=1, max_length=4_000_000)
    model: str | None = None
    name: str = Field(default="", max_length=80)
    too_long: Literal["extend", "windows", "truncate", "refuse"] = "extend"
    bound: bool = False


class BookJob(BaseModel):
    """Let the bundled model read the bundled book; the recording is kept."""

    kind: Literal["book"]
    bound: bool = False


class GenerateJob(BaseModel):
    """Continue a text with a model; temperature 0 always takes the likeliest token."""

    kind: Literal["generate"]
    text: str = Field(min_length=1, max_length=4_000_000)
    model: str | None = None
    name: str = Field(default="", max_length=80)
    new_tokens: int = Field(default=32, ge=1, le=4096)
    temperature: float = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    bound: bool = False


class PyramidJob(BaseModel):
    """Make the stored overviews of a recording: of all heads, of a layer's, or of one."""

    kind: Literal["pyramid"]
    recording: str
    role: str | None = None
    layer: int | None = None
    head: int | None = None
    bound: bool = False


class KnockoutJob(KnockoutRequest):
    """Cut, and run the model, which takes a while on a long text; the result has the answer."""

    kind: Literal["knockout"]
    recording: str
    bound: bool = False


class AtlasJob(BaseModel):
    """Survey every head of a recording."""

    kind: Literal["atlas"]
    recording: str
    bound: bool = False


Wanted = Annotated[
    RecordJob | BookJob | GenerateJob | PyramidJob | KnockoutJob | AtlasJob, Body(discriminator="kind")
]


def job_of(session: SessionDep, job: str) -> Job:
    """The job that a path names."""
    with found():
        return session.jobs.get(job)


JobDep = Annotated[Job, Depends(job_of)]


@router.post("", response_model=Started)
def start(wanted: Wanted, session: SessionDep) -> dict[str, Any]:
    """Queue a job, and return its id."""
    with found():
        return {"id": _start(wanted, session).id}


@router.get("", response_model=JobList)
def list_jobs(session: SessionDep) -> dict[str, Any]:
    """Running and waiting jobs."""
    return {"jobs": [job.to_dict() for job in session.jobs.live]}


@router.get("/{job}", response_model=JobState)
def look(job: JobDep) -> dict[str, Any]:
    """How far a job is."""
    return job.to_dict()


@router.delete("/{job}", response_model=JobState)
def cancel(job: JobDep) -> dict[str, Any]:
    """Ask a job to end."""
    job.cancel()
    return job.to_dict()


@router.get(
    "/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(job: JobDep) -> StreamingResponse:
    """The events of a job until it ends (server-sent events)."""
    return StreamingResponse(
        _told(job), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _told(job: Job) -> AsyncIterator[str]:
    job.listen()
    seen, spoke = 0, time.monotonic()
    try:
        if job.state not in ENDED:
            yield _event(job.to_dict())
        while True:
            # Read the state before the events: if the job has ended, all of its events are there.
            now = job.to_dict()
            ended = now["state"] in ENDED
            new = job.events[seen:]
            seen += len(new)
            # Of progress events send only the latest; send all others. The end comes last, because clients
            # stop listening after it.
            said = [event for event in new if event]
            for event in said:
                yield _event({**now, "state": "running"} if ended else now, event)
            if ended or (new and not new[-1]):
                yield _event(now)
            elif time.monotonic() - spoke > ALIVE:
                yield ": still here\n\n"
            spoke = time.monotonic() if new else spoke
            if ended:
                return
            await anyio.sleep(LOOK)
    finally:
        job.unlisten()


def _event(now: dict[str, Any], more: dict[str, Any] | None = None) -> str:
    return f"data: {json.dumps({**now, **(more or {})}, allow_nan=False)}\n\n"


def _start(wanted: Wanted, session: Session) -> Job:
    if isinstance(wanted, RecordJob | GenerateJob):
        model = session.shelf.names[0] if wanted.model is None else wanted.model
        if model not in session.shelf.names:
            known = ", ".join(map(repr, session.shelf.names))
            raise HTTPException(404, f"no model is called {model!r}; there are {known}.")
        if isinstance(wanted, RecordJob):
            return session.start_record(
                wanted.text, model, wanted.too_long, name=wanted.name, bound=wanted.bound
            )
        return session.start_generate(
            wanted.text,
            model,
            wanted.new_tokens,
            wanted.temperature,
            name=wanted.name,
            bound=wanted.bound,
        )
    if isinstance(wanted, BookJob):
        return session.start_book(bound=wanted.bound)
    entry = session.library.get(wanted.recording)
    if isinstance(wanted, KnockoutJob):
        asked = wanted.model_dump(exclude={"kind", "recording", "bound"})
        return session.start_knockout(entry, asked, bound=wanted.bound)
    if isinstance(wanted, AtlasJob):
        return session.start_atlas(entry, bound=wanted.bound)
    heads = [
        (role, layer, head)
        for role, shape in entry.shapes.items()
        for layer in shape.layers
        for head in range(shape.heads)
        if wanted.role in (None, role) and wanted.layer in (None, layer) and wanted.head in (None, head)
    ]
    if not heads:
        raise HTTPException(404, "the recording has no such head.")
    return session.start_pyramid(entry, heads, bound=wanted.bound)
