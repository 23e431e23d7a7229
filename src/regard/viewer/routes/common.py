"""Helpers that all routes share: dependencies and responses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request, Response
from pydantic import BaseModel
from torch import Tensor

from regard.viewer.library import Entry
from regard.viewer.session import Session

__all__ = ["BINARY", "PROBLEMS", "EntryDep", "Index", "Problem", "SessionDep", "array", "found"]

# The largest valid index; larger numbers would overflow where indices are stored.
MOST = 1 << 40
Index = Annotated[int, Path(ge=0, le=MOST)]


class Problem(BaseModel):
    """The error, in one sentence; `job` if waiting for that job helps."""

    error: str
    job: str | None = None


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request asks for something that is not there."},
    401: {"model": Problem, "description": "The token is missing or wrong."},
    403: {"model": Problem, "description": "The request comes from another site."},
    404: {"model": Problem, "description": "There is nothing of that name."},
    409: {"model": Problem, "description": "It cannot be done with what is at hand."},
    410: {"model": Problem, "description": "The recording has gone, was changed, or is damaged."},
    413: {"model": Problem, "description": "The request is too large."},
    421: {"model": Problem, "description": "The request is meant for another server."},
    422: {"model": Problem, "description": "The request is malformed."},
    429: {"model": Problem, "description": "Too many requests at once."},
    500: {"model": Problem, "description": "A fault in the server."},
    503: {"model": Problem, "description": "Not yet, or not with this installation."},
}
BINARY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "float32, little-endian, row by row; X-Rows and X-Cols say how many.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "You have it already."},
}


def session_of(request: Request) -> Session:
    """The session of the request's application."""
    return request.app.state.session


SessionDep = Annotated[Session, Depends(session_of)]


def entry_of(session: SessionDep, recording: str) -> Entry:
    """The recording that a path names."""
    with found():
        return session.library.get(recording)


EntryDep = Annotated[Entry, Depends(entry_of)]


@contextmanager
def found() -> Iterator[None]:
    """Within the block, turn a KeyError into a 404 with its message."""
    try:
        yield
    except KeyError as error:
        raise HTTPException(404, str(error.args[0])) from error


def array(request: Request, key: tuple[Any, ...], values: Tensor | None) -> Response:
    """A response with numbers as bytes. `key` identifies the contents permanently, so with `values` None only
    the client's cached copy is checked."""
    tag = '"' + hashlib.sha256(repr(key).encode()).hexdigest()[:32] + '"'
    headers = {"ETag": tag, "Cache-Control": "private, max-age=31536000, immutable"}
    if values is None:
        known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
        return Response(status_code=304 if tag in known else 200, headers=headers)
    rows, cols = values.shape
    headers |= {"X-Rows": str(rows), "X-Cols": str(cols)}
    data = values.detach().cpu().contiguous().numpy().astype("<f4").tobytes()
    return Response(data, media_type="application/octet-stream", headers=headers)
