"""Two recordings beside each other."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from regard.viewer.answers import Alignment, AlignmentRun, Distances
from regard.viewer.comparing import Aligned, difference, row_distances, sampled
from regard.viewer.routes.common import BINARY, PROBLEMS, EntryDep, Index, SessionDep, array, found
from regard.viewer.routes.maps import Place, Site

__all__ = ["router"]

PREFIX = "/api/recordings/{recording}/stacks/{role}/compare/{other}"
router = APIRouter(prefix=PREFIX, responses=PROBLEMS, tags=["compare"])


class Both:
    """One stack of two recordings, with the tokens that both have."""

    def __init__(self, entry: EntryDep, session: SessionDep, role: str, other: str) -> None:
        with found():
            second = session.library.get(other)
        self.entries, self.session, self.role = (entry, second), session, role
        self.shapes = [session.shape(one, role) for one in self.entries]
        self.queries, self.keys = session.aligned(entry, second, role)
        if not self.queries.count or not self.keys.count:
            raise HTTPException(409, "the two texts have no token in common: nothing can be compared.")

    @property
    def layers(self) -> list[int]:
        """Layers that both have."""
        return [layer for layer in self.shapes[0].layers if layer in self.shapes[1].layers]


BothDep = Annotated[Both, Depends()]


@router.get("")
def alignment(both: BothDep) -> Alignment:
    """Which tokens of the two texts are the same."""
    return Alignment(queries=_runs(both.queries), keys=_runs(both.keys))


@router.get("/heads")
def distances(both: BothDep) -> Distances:
    """How far every head's rows are apart: the mean weight that would have to move, from 0 to 1."""
    picked = sampled(both.queries)
    rows = [both.queries.places(side)[picked] for side in (0, 1)]
    heads = min(shape.heads for shape in both.shapes)
    apart = []
    with found():
        for layer in both.layers:
            maps = [entry.layer(both.role, layer).map for entry in both.entries]
            parts = [whole[0, :heads, at].cpu() for whole, at in zip(maps, rows, strict=True)]
            apart.append(row_distances((parts[0], parts[1]), both.keys).tolist())
    return Distances(
        layers=both.layers, heads=heads, distance=apart, queries=len(picked), shared=both.queries.count
    )


@router.get("/layers/{layer}/heads/{head}/difference", responses=BINARY, response_class=Response)
def read_difference(
    request: Request,
    both: BothDep,
    layer: Index,
    head: Index,
    q0: Place,
    q1: Place,
    k0: Place,
    k1: Place,
    size: Annotated[int, Query(ge=1, le=1024)] = 256,
) -> Response:
    """The first map minus the second over a rectangle of common tokens; the largest of each block."""
    sites = [Site(entry, both.session, both.role, layer, head) for entry in both.entries]
    values = difference(
        (sites[0].head, sites[1].head), both.queries, both.keys, range(q0, q1), range(k0, k1), size
    )
    return array(request, (*(site.key for site in sites), "difference", q0, q1, k0, k1, size), values)


def _runs(aligned: Aligned) -> list[AlignmentRun]:
    return [AlignmentRun(first=a, second=b, length=length) for a, b, length in aligned.runs]
