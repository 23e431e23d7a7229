"""Converts results of the atlas package for the page: kinds of heads, and the effects of cuts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import HTTPException

from regard.models import LoadedModel, Recording

__all__ = ["cut", "survey"]

CANDIDATES = 10
# For texts longer than this, the model reads only up to the query.
LONG = 8192


def survey(recording: Recording, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Every head with its score for every kind, the evidence as text, and its statistics.

    A kind that could not be judged has no score. A statistic without a number is a text with the reason.
    """
    found = _atlas_package().atlas(recording, progress=progress).to_dict()["heads"]
    heads = [
        {
            "role": head["stack"],
            "layer": head["layer"],
            "head": head["head"],
            "kinds": {
                name: one["score"] for name, one in head["findings"].items() if one["score"] is not None
            },
            "findings": head["findings"],
            "statistics": {name: x for name, x in head["statistics"].items() if x is not None},
        }
        for head in found
    ]
    kinds = list(dict.fromkeys(name for head in found for name in head["findings"]))
    names = [name for head in heads for name, x in head["statistics"].items() if _is_number(x)]
    return _finite({"heads": heads, "kinds": kinds, "statistics": list(dict.fromkeys(names))})


def cut(
    loaded: LoadedModel,
    recording: Recording,
    wanted: dict[str, Any],
    *,
    causal: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The change of the next token's distribution when heads, edges or keys are cut."""
    package = _atlas_package()
    ids = recording.token_ids["decoder"][0]
    stack, at, keys = wanted.get("stack"), wanted["at"], wanted["keys"]
    heads: list[Any] = [tuple(head) for head in wanted["heads"]]
    edges = [
        package.Edge(edge["layer"], edge["head"], edge["query"], edge["key"]) for edge in wanted["edges"]
    ]
    given: dict[str, Any] = {}
    if "encoder" in recording.token_ids:
        # Positions belong to the stack on display, predictions to the decoder.
        given, ids = {"written": ids}, recording.token_ids["encoder"][0]
        heads = [(stack, *head) for head in heads] if stack else heads
        edges = [replace(edge, stack=stack) for edge in edges]
        edges += [package.Edge(key=key, stack=stack) for key in keys]
        keys, at, causal = [], -1 if stack == "encoder" else at, False
    if causal and 0 <= at and LONG < len(ids):
        # Later tokens can't influence this one, so cuts after it have no effect.
        ids = ids[: at + 1]
        keys = [key for key in keys if key <= at]
    found = package.knockout(
        loaded.model,
        ids,
        heads=heads,
        edges=edges,
        keys=tuple(keys),
        at=at,
        instead=wanted["instead"],
        tokenizer=loaded.tokenizer,
        top=CANDIDATES,
        progress=progress,
        **given,
    )
    return _answer(found)


def _answer(found: Any) -> dict[str, Any]:
    """The tokens that are likely before or after a cut, as plain data for the page."""
    listed = {one.id: one for one in (*found.before, *found.after)}.values()
    shown = [{"token": one.text or f"#{one.id}", "id": one.id} for one in listed]
    return _finite(
        {
            "at": found.at,
            "tokens": found.tokens,
            "kl": found.kl,
            "before": [{**name, "probability": one.before} for name, one in zip(shown, listed, strict=True)],
            "after": [{**name, "probability": one.after} for name, one in zip(shown, listed, strict=True)],
            "loss_change": found.loss_change,
        }
    )


def _atlas_package() -> Any:
    try:
        import regard.atlas as package
    except ImportError as error:
        raise HTTPException(503, f"this copy of regard has no atlas ({error}).") from error
    return package


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _finite(value: Any) -> Any:
    """The same with None for infinities and NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
