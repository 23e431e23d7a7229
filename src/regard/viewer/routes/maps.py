"""One head's map: tiles, cells, rows, columns, regions, statistics, steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from regard.errors import MapError
from regard.viewer.answers import Cell, Column, Region, Row, Statistics, Steps
from regard.viewer.heads import Head
from regard.viewer.names import axis_names
from regard.viewer.readings import REGION, cell, column, line, region, row
from regard.viewer.routes.common import BINARY, MOST, PROBLEMS, EntryDep, Index, SessionDep, array, found
from regard.viewer.shapes import StackShape
from regard.viewer.statistics import row_entropy, statistics
from regard.viewer.steps import Part, StepSettings, head_steps, step
from regard.viewer.tiles import direct, read_thumb, read_tile, tile_shape

__all__ = ["HEAD", "LAYER", "Place", "SiteDep", "router"]

LAYER = "/stacks/{role}/layers/{layer}"
HEAD = "/heads/{head}"
router = APIRouter(prefix="/api/recordings/{recording}" + LAYER, responses=PROBLEMS, tags=["maps"])

How = Literal["mean", "max"]
Place = Annotated[int, Query(ge=0, le=MOST)]
Count = Annotated[int, Query(ge=1, le=1024)]


class Site:
    """The head that a path names, and what is needed to read it."""

    def __init__(self, entry: EntryDep, session: SessionDep, role: str, layer: Index, head: Index) -> None:
        self.entry, self.session = entry, session
        self.role, self.layer, self.number = role, layer, head

    @property
    def shape(self) -> StackShape:
        shape = self.session.shape(self.entry, self.role)
        if self.layer not in shape.layers:
            known = ", ".join(map(str, shape.layers))
            raise HTTPException(404, f"layer {self.layer} was not recorded; recorded are: {known}.")
        if self.number >= shape.heads:
            raise HTTPException(404, f"head {self.number} is out of range: a layer has {shape.heads}.")
        return shape

    @property
    def head(self) -> Head:
        _ = self.shape
        with found():
            return self.entry.head(self.role, self.layer, self.number)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.entry.checksum, self.role, self.layer, self.number

    def pyramid(self) -> Any:
        return self.session.pyramid(self.entry, self.role, self.layer, self.number)

    def stored(self, read: Any) -> Any:
        """Read the pyramid; if its files are gone, make it again."""
        try:
            return read(self.pyramid())
        except OSError:
            self.session.forget_pyramid(self.entry, self.role, self.layer, self.number)
            return read(self.pyramid())


SiteDep = Annotated[Site, Depends()]


@router.get(HEAD + "/tile", responses=BINARY, response_class=Response)
def tile(
    request: Request,
    site: SiteDep,
    level: Annotated[int, Query(ge=0, le=40)],
    row: Place,
    col: Place,
    how: How = "mean",
) -> Response:
    """One tile of a level: blocks of 2^level × 2^level cells, each its mean or its largest weight."""
    shape = site.shape
    site.entry.check()
    tile_shape(shape.queries, shape.keys, level, row, col)
    key = (*site.key, "tile", level, row, col, how)
    if (known := array(request, key, None)).status_code == 304:
        return known
    kept = site.session.tiles.get(key[:-1])
    if kept is None:
        if direct(level, shape.queries, shape.keys):
            kept = read_tile(site.head, level, row, col)
        else:
            kept = site.stored(lambda p: (p.read(level, row, col, "mean"), p.read(level, row, col, "max")))
        site.session.tiles.put(key[:-1], kept)
    return array(request, key, kept[0] if how == "mean" else kept[1])


@router.get(HEAD + "/thumb", responses=BINARY, response_class=Response)
def thumb(
    request: Request,
    site: SiteDep,
    size: Annotated[int, Query(ge=1, le=256)] = 64,
    how: How = "max",
) -> Response:
    """The whole map in at most `size` × `size` blocks."""
    shape = site.shape
    site.entry.check()
    key = (*site.key, "thumb", size, how)
    if (known := array(request, key, None)).status_code == 304:
        return known
    kept = site.session.tiles.get(key)
    if kept is None:
        if direct(99, shape.queries, shape.keys):
            found_ = read_thumb(site.head, shape.queries, shape.keys, size, how)
        else:
            found_ = site.stored(lambda p: read_thumb(p, shape.queries, shape.keys, size, how))
        kept = (found_, found_)
        site.session.tiles.put(key, kept)
    return array(request, key, kept[0])


@router.get(HEAD + "/cell", response_model=Cell)
def read_cell(site: SiteDep, query: Place, key: Place) -> dict[str, Any]:
    """One pair: its weight, score, rank and distance."""
    return cell(site.head, query, key)


@router.get(HEAD + "/row", response_model=Row)
def read_row(site: SiteDep, query: Place, k: Count = 10) -> dict[str, Any]:
    """The heaviest keys of one query."""
    return row(site.head, query, k)


@router.get(HEAD + "/column", response_model=Column)
def read_column(site: SiteDep, key: Place, k: Count = 10) -> dict[str, Any]:
    """The queries that attend to one key most."""
    return column(site.head, key, k)


@router.get(HEAD + "/weights", responses=BINARY, response_class=Response)
def weights(
    request: Request, site: SiteDep, query: Place | None = None, key: Place | None = None
) -> Response:
    """One row over all keys, or one column over all queries."""
    _one_of(query, key)
    values = line(site.head, query, key)[None]
    return array(request, (*site.key, "weights", query, key), values)


@router.get(HEAD + "/region", response_model=Region)
def read_region(site: SiteDep, q0: Place, q1: Place, k0: Place, k1: Place) -> dict[str, Any]:
    """Sums over a rectangle; ends are not included."""
    head, rows, cols = site.head, range(q0, q1), range(k0, k1)
    large = len(rows) * len(cols) > REGION
    if large and q1 <= head.queries and k1 <= head.keys:
        said = site.stored(lambda pyramid: region(head, rows, cols, pyramid))
    else:
        said = region(head, rows, cols, None)
    layer = site.entry.layer(site.role, site.layer)
    return {**said, "entropy_mean": row_entropy(layer, site.number, rows)}


@router.get(HEAD + "/statistics", response_model=Statistics)
def read_statistics(site: SiteDep) -> dict[str, Any]:
    """Statistics by row, curves by distance and position, and single numbers."""
    shape, head = site.shape, site.head
    curves = None
    if not direct(99, shape.queries, shape.keys):
        curves = (site.stored(lambda pyramid: pyramid.about()) or {}).get("curves")
    return statistics(site.entry.layer(site.role, site.layer), head, site.number, curves)


@router.get(HEAD + "/steps", response_model=Steps)
def steps(
    site: SiteDep,
    query: Place,
    temperature: Annotated[float, Query(ge=0.01, le=100, allow_inf_nan=False)] = 1.0,
    scaled: bool = True,
) -> dict[str, Any]:
    """The steps of one query from its tokens to the next token, with the model's numbers."""
    shape = site.shape
    with found():
        whole = site.entry.layer(site.role, site.layer).map
    names = axis_names(site.entry.recording, site.role, shape.queries, shape.keys)
    said = head_steps(whole, site.number, StepSettings(query, temperature, scaled), *names)
    coming = site.session.next_tokens(site.entry, query) if site.role == "decoder" else []
    return {**said, "layer": site.layer, "next": coming, "steps": [*said["steps"], *_next_step(coming)]}


@router.get("/weights", responses=BINARY, response_class=Response)
def layer_weights(
    request: Request,
    entry: EntryDep,
    session: SessionDep,
    role: str,
    layer: Index,
    query: Place | None = None,
    key: Place | None = None,
) -> Response:
    """The same row or column of every head of a layer."""
    _one_of(query, key)
    sites = [Site(entry, session, role, layer, head) for head in range(session.shape(entry, role).heads)]
    values = torch.stack([line(site.head, query, key) for site in sites])
    return array(request, (entry.checksum, role, layer, "layer", query, key), values)


def _one_of(query: int | None, key: int | None) -> None:
    if (query is None) == (key is None):
        raise MapError("give either a query, for its row, or a key, for its column.")


def _next_step(coming: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not coming:
        return []
    sentence = (
        "After all layers the last vector of the query's token is compared with every token of the "
        "vocabulary: these are the likeliest to come next."
    )
    chances = torch.tensor([[one["probability"]] for one in coming])
    part = Part("next", [one["token"] for one in coming], ["probability"], chances)
    return [step("next", "Next token", "softmax(x W_u)", sentence, part)]
