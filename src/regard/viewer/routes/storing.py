"""Recordings as files: kept, saved, opened from the page."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from regard.viewer.answers import Made, Started
from regard.viewer.routes.common import MOST, PROBLEMS, EntryDep, SessionDep
from regard.viewer.storing import Upload, file_name, zipped

__all__ = ["router"]

router = APIRouter(prefix="/api", responses=PROBLEMS, tags=["files"])
FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A ZIP file of the recording's folder.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class Named(BaseModel):
    """What a recording is to be called."""

    name: str = Field(min_length=1, max_length=80)


def upload_of(session: SessionDep, upload: str) -> Upload:
    """The upload that a path names."""
    if upload not in session.uploads:
        raise HTTPException(404, "no recording is arriving under this id. Open it again.")
    return session.uploads[upload]


UploadDep = Annotated[Upload, Depends(upload_of)]


@router.post("/recordings/{recording}/keep")
def keep(entry: EntryDep, session: SessionDep, wanted: Named) -> Made:
    """Keep a recording under a name: it is there again after a restart of the server."""
    return Made(recording=session.kept(entry, wanted.name).id)


@router.delete("/recordings/{recording}")
def remove(entry: EntryDep, session: SessionDep) -> Made:
    """Remove a recording that was kept."""
    session.forget(entry)
    return Made(recording=entry.id)


@router.get("/recordings/{recording}/file", responses=FILE, response_class=StreamingResponse)
def save(entry: EntryDep, session: SessionDep) -> StreamingResponse:
    """The recording as one file, which the page can open again."""
    name = f"{file_name(entry.name.removesuffix('.regard'))}.regard"
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}.zip"}
    return StreamingResponse(
        zipped(session.folder(entry), name), media_type="application/zip", headers=headers
    )


@router.post("/uploads")
def begin(session: SessionDep) -> Started:
    """Begin an upload of a recording in pieces."""
    return Started(id=session.start_upload())


@router.put("/uploads/{upload}/{file}", status_code=204)
async def receive(
    upload: UploadDep, file: str, request: Request, at: Annotated[int, Query(ge=0, le=MOST)] = 0
) -> None:
    """A piece of one of its files; `at` is the size of the file so far."""
    data = await request.body()
    await run_in_threadpool(upload.write, file, at, data)


@router.post("/uploads/{upload}")
def finish(session: SessionDep, upload: str, wanted: Named, _: UploadDep) -> Made:
    """End an upload: check the recording, and show it."""
    return Made(recording=session.finish_upload(upload, wanted.name).id)


@router.delete("/uploads/{upload}", status_code=204)
def cancel(session: SessionDep, upload: str, arriving: UploadDep) -> None:
    """Cancel an upload."""
    session.uploads.pop(upload, None)
    arriving.drop()
