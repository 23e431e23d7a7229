"""Results about heads and tokens: evidence for a kind, one token in every head."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from regard.models.sites import APART
from regard.viewer.answers import Curve, Everywhere, Evidence, EvidencePlace, Questions, Said, Sights
from regard.viewer.everywhere import everywhere
from regard.viewer.names import sides_of, tokens_of
from regard.viewer.questions import questions
from regard.viewer.routes.common import PROBLEMS, EntryDep, SessionDep, found
from regard.viewer.routes.maps import HEAD, LAYER, Place, SiteDep
from regard.viewer.sights import said_at, sights

__all__ = ["router"]

router = APIRouter(prefix="/api/recordings/{recording}", responses=PROBLEMS, tags=["findings"])
BINS = 64


@router.get(LAYER + HEAD + "/evidence")
def evidence(
    site: SiteDep,
    kind: Annotated[str, Query(max_length=64)],
    k: Annotated[int, Query(ge=1, le=4096)] = 500,
) -> Evidence:
    """Where a kind's keys are, and the weight they get, along the text."""
    from regard.atlas.evidence import EVIDENCE
    from regard.atlas.evidence import evidence as collect

    if kind not in EVIDENCE:
        raise HTTPException(404, f"no kind is called {kind!r}; there are {', '.join(map(repr, EVIDENCE))}.")
    layer = site.entry.layer(site.role, site.layer)
    known = layer.stats.get("max_score")
    top = None
    if known is not None:
        number = site.number
        top = (known.value[0, number] - layer.lse[0, number]).exp(), known.key[0, number]
    words = site.session.words(site.entry, layer)
    seen = collect(site.head.map, kind, role=site.role, words=words, top=top)
    bins = seen.along(BINS)
    return Evidence(
        kind=kind,
        looks_for=seen.looks_for,
        queries=seen.queries,
        hits=seen.hits,
        mean=seen.mean,
        step=seen.step,
        along=Curve(
            position=[at for at, _, _ in bins],
            weight=[weight for _, weight, _ in bins],
            hits=[share for _, _, share in bins],
        ),
        places=[EvidencePlace(**place._asdict()) for place in seen.places(k)],
    )


@router.get("/stacks/{role}/everywhere")
def read_everywhere(
    entry: EntryDep, session: SessionDep, role: str, query: Place | None = None, key: Place | None = None
) -> Everywhere:
    """One query in every head of a stack, or one key; both: also the weight between them."""
    shape = session.shape(entry, role)
    with found():
        return everywhere([entry.layer(role, number) for number in shape.layers], query, key)


@router.get("/stacks/{role}/questions")
def ask(entry: EntryDep, session: SessionDep, role: str) -> Questions:
    """Questions about this text, and their answers."""
    shape = session.shape(entry, role)
    if role in APART:
        return Questions(returning=None, farthest=None)  # no distance lies between queries and keys
    layers = [entry.layer(role, number) for number in shape.layers]
    return questions(layers, tokens_of(entry.recording, sides_of(role)[0], shape.keys))


@router.get("/stacks/{role}/pictures")
def read_pictures(entry: EntryDep, session: SessionDep, role: str) -> Sights:
    """What was seen or heard, and which keys of the stack are its patches or frames."""
    return Sights.model_validate({"pictures": sights(entry.recording, session.shape(entry, role))})


@router.get("/said")
def read_said(entry: EntryDep) -> Said:
    """When each token was said, of a model that writes down what it hears."""
    return Said(**said_at(entry.recording))
