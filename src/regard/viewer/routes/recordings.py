"""The server itself, its recordings, their tokens, the worked examples."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field

from regard._version import __version__
from regard.errors import RegardError
from regard.models.sites import APART
from regard.viewer.answers import (
    Atlas,
    Described,
    Info,
    KnockoutResult,
    Pending,
    Recordings,
    Steps,
    Tokens,
    Worked,
)
from regard.viewer.library import Entry
from regard.viewer.names import SIDES, sides_of, tokens_of
from regard.viewer.pooling import TILE
from regard.viewer.routes.common import PROBLEMS, EntryDep, SessionDep, found
from regard.viewer.session import Session
from regard.viewer.settings import Settings
from regard.viewer.shelf import BUNDLED, model_name
from regard.viewer.sights import has_pictures
from regard.viewer.worked import worked_names, worked_steps

__all__ = ["router"]

router = APIRouter(prefix="/api", responses=PROBLEMS, tags=["recordings"])


Several = Annotated[list[int], Field(min_length=1, max_length=65536)]


class EdgeCut(BaseModel):
    """An edge to cut; each part is a number or several, and null stands for all."""

    layer: int | Several | None = None
    head: int | Several | None = None
    query: int | Several | None = None
    key: int | Several | None = None


class KnockoutRequest(BaseModel):
    """What to cut, and the token to look at; -1 is the last.

    `instead` is what cut heads return: zero, their mean so far, or their output at an earlier token.
    `stack` is whose layers, queries and keys are meant, of a model that has several.
    """

    heads: list[tuple[int, int]] = Field(default=[], max_length=4096)
    edges: list[EdgeCut] = Field(default=[], max_length=4096)
    keys: list[int] = Field(default=[], max_length=65536)
    at: int = -1
    instead: Literal["zero", "mean", "resample"] = "zero"
    stack: str | None = None


@router.get("/info", response_model=Info)
def info(session: SessionDep) -> dict[str, Any]:
    """The version, and which models can be run."""
    names = session.shelf.names
    models = [{"name": name, "bundled": name == BUNDLED} for name in names]
    return {"version": __version__, "models": models, "can_run_models": bool(names)}


@router.get("/recordings", response_model=Recordings)
def list_recordings(session: SessionDep) -> dict[str, Any]:
    """Every recording there is; one that cannot be read says why."""
    entries, broken = session.library.entries()
    listed = [_line(entry, session.settings) for entry in entries]
    usable = [line for line in listed if "error" not in line]
    listed += [
        {
            "id": path.name,
            "name": path.name,
            "model": "",
            "tokens": 0,
            "stacks": [],
            "error": session.settings.without_folders(reason),
        }
        for path, reason in broken
    ]
    return {"recordings": listed, "default": usable[0]["id"] if usable else None}


@router.get("/recordings/{recording}", response_model=Described)
def describe(entry: EntryDep, session: SessionDep) -> dict[str, Any]:
    """What a page must know before it requests any map."""
    shapes = list(entry.shapes.values())
    about = entry.recording
    return {
        "id": entry.id,
        "name": entry.name,
        "model": model_name(about.model.name),
        "kind": about.model.kind,
        "tokenizer": None if about.tokenizer is None else model_name(about.tokenizer),
        "tokens": max((shape.queries for shape in shapes), default=0),
        "complete": about.complete,
        "live": session.shelf.of(about) is not None,
        "storing": _storing(entry, session),
        "stacks": [shape.to_dict() for shape in shapes],
        "pictures": [shape.role for shape in shapes if has_pictures(about, shape)],
        "levels": shapes[0].levels if shapes else 1,
        "tile": TILE,
    }


@router.get("/recordings/{recording}/tokens", response_model=Tokens)
def tokens(
    entry: EntryDep,
    session: SessionDep,
    role: Annotated[str | None, Query(max_length=16)] = None,
    side: Literal["queries", "keys"] = "keys",
) -> dict[str, Any]:
    """The text and the place of each token in it.

    In cross-attention, queries and keys are of two texts; otherwise both are the whole text.
    """
    shapes = entry.shapes
    if not shapes:
        raise HTTPException(409, "nothing was recorded, so there are no tokens.")
    chosen = role or next(iter(shapes))
    shape = session.shape(entry, chosen)
    count = shape.queries if chosen in APART and side == "queries" else shape.keys
    return tokens_of(entry.recording, sides_of(chosen)[SIDES.index(side)], count)


@router.get(
    "/recordings/{recording}/atlas",
    response_model=Atlas,
    responses={202: {"model": Pending, "description": "It is being made: `job` says how far it is."}},
)
def atlas(entry: EntryDep, session: SessionDep) -> Any:
    """The kinds of every head; 202 and a job while they are computed."""
    from fastapi.responses import JSONResponse

    entry.check()
    if entry.id in session.atlases:
        return session.atlases[entry.id]
    return JSONResponse({"job": session.start_atlas(entry, bound=True).id}, 202)


@router.post("/recordings/{recording}/knockout", response_model=KnockoutResult)
def knock_out(wanted: KnockoutRequest, entry: EntryDep, session: SessionDep) -> dict[str, Any]:
    """Cut heads, edges or keys out, run the model, and compare its next-token predictions."""
    return session.knockout(entry, wanted.model_dump())


@router.get("/worked", response_model=Worked)
def list_worked() -> dict[str, list[str]]:
    """The names of the worked examples."""
    return {"names": worked_names()}


@router.get("/worked/{name}", response_model=Steps)
def worked(name: str) -> dict[str, Any]:
    """Every step of a worked example."""
    with found():
        return worked_steps(name)


def _storing(entry: Entry, session: Session) -> str:
    if session.library.kept is None:
        return "no"
    return "kept" if session.library.keeps(entry) else "can"


def _line(entry: Entry, settings: Settings) -> dict[str, Any]:
    """One line of the list."""
    line: dict[str, Any] = {"id": entry.id, "name": entry.name, "model": "", "tokens": 0, "stacks": []}
    try:
        shapes = entry.shapes
        line["model"] = model_name(entry.recording.model.name)
    except RegardError as error:
        return {**line, "error": settings.without_folders(str(error))}
    longest = max((shape.queries for shape in shapes.values()), default=0)
    return {**line, "tokens": longest, "stacks": list(shapes)}
