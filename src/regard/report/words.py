"""The sentences of a report that do not depend on its numbers."""

from __future__ import annotations

__all__ = ["CAVEATS", "KIND_SENTENCES"]

KIND_SENTENCES = {
    "previous token": "Each query looks at the token just before it: a line beside the diagonal.",
    "self": "Each query looks at its own token: the diagonal itself.",
    "first-token sink": "Queries that find nothing leave weight on the first token: a dark first column.",
    "duplicate token": "Queries look at earlier places of the very same token.",
    "induction": "Queries look at what came after the same token earlier on, which is how a model copies.",
    "local": "Most weight stays close by: a band along the diagonal.",
    "strided": "Weight lies at one fixed distance: a line parallel to the diagonal.",
    "uniform": "Every visible key gets about the same: the head averages.",
    "delimiter": "Weight gathers on punctuation and line breaks: dark columns where sentences end.",
    "retrieval": "Queries find what they ask for far back, such as the passage that the text repeats: dark "
    "cells far from the diagonal.",
    "alignment": "Queries go through the source in order: each word looks at its own place there.",
}

CAVEATS = (
    "A weight is a routing coefficient, not an explanation: a heavy edge may carry a value of almost no "
    "length, and what a token needs may have reached it through the residual stream or through other layers. "
    "Cutting an edge and running the model again (regard knockout) tells more.",
    "A kind is a pattern of weights over this one text. Another text may show other kinds in the same head, "
    "and two heads of one kind may do different things.",
    "Thumbnails show the largest weight of each block, so that single dark cells survive; they make maps "
    "look busier than their means are.",
    "The share of weight on a token depends on how many queries could see it: early tokens are seen by all.",
    "A power law and an exponential are two descriptions among many; γ sums up a curve and is no law of the "
    "model.",
)
