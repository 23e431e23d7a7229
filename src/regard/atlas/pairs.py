"""Heads that attend from some tokens to others: from a bracket to its partner, from an object to its verb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.atlas.choice import chosen_text
from regard.atlas.kinds import Kind
from regard.atlas.kinds.finding import lifted, unfit
from regard.atlas.tally import Tally, tally_of
from regard.cards import Finding
from regard.errors import RecordingError
from regard.models import Recording
from regard.models.sites import APART

__all__ = ["PairedHead", "bracket_pairs", "paired_heads"]

CLOSES = {")": "(", "]": "[", "}": "{", "”": "“", "’": "‘", "»": "«"}
# The square root of the cells per read and head.
CHUNK = 128
Pairs = str | Sequence[tuple[int, int]] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class PairedHead:
    """How much weight one head puts on the given pairs."""

    stack: str
    layer: int
    head: int
    finding: Finding


def paired_heads(
    recording: Recording, pairs: Pairs = "brackets", *, stack: str | None = None, row: int = 0
) -> tuple[PairedHead, ...]:
    """Every head's weight from the first token of each pair to the second, above chance, best first.

    `pairs` is "brackets" (each closing bracket or quote with the one that it closes), "next" (each token with
    the one after it, for bidirectional models), a list of (query, key) positions, or two words, such as
    ("door", "opened"): each occurrence of the first word with the last occurrence before it of the second.
    Scores are those of the atlas: 1 if all weight is on the second tokens, 0 for an even spread and for
    weights that a shuffled map reaches too.

    >>> from regard.models import bundled, record
    >>> text = "The fox (who was red) saw the owl (who was grey). " * 12
    >>> best = paired_heads(record(bundled(), text))[0]
    >>> best.finding.queries
    24
    """
    text, layers = chosen_text(recording, stack, row)
    found: list[PairedHead] = []
    for layer in layers:
        if layer.role in APART:
            continue
        tally = tally_of(layer.map, layer.role)
        wanted = _pairs(text, pairs, tally.k)
        said = pairs if isinstance(pairs, str) else "pairs"
        for head, one in enumerate(_findings(tally, wanted, Kind(said, lambda *_: []))):
            found.append(PairedHead(layer.role, layer.index, head, one))
    return tuple(sorted(found, key=lambda one: -(one.finding.score or 0.0)))


def bracket_pairs(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of a closing bracket or quote and its opening one; straight quotes close within their line.

    >>> bracket_pairs(["(", "a", ")", ' "', "b", '"'])
    [(2, 0), (5, 3)]
    """
    found: list[tuple[int, int]] = []
    held: list[tuple[str, int]] = []
    for at, text in enumerate(texts):
        for sign in text:
            opened = '"' if sign == '"' and any(s == '"' for s, _ in held) else CLOSES.get(sign)
            place = next((i for i in reversed(range(len(held))) if held[i][0] == opened), None)
            if place is not None:
                if held[place][1] != at:
                    found.append((at, held[place][1]))
                del held[place:]
            elif sign in CLOSES.values() or sign == '"':
                held.append((sign, at))
            elif sign == "\n":
                held = [one for one in held if one[0] != '"']
    return found


def _pairs(text: Recording, pairs: Pairs, keys: int) -> list[tuple[int, int]]:
    if pairs == "next":
        return [(at, at + 1) for at in range(keys - 1)]
    if pairs == "brackets":
        return bracket_pairs([token.text for token in text.tokens[:keys]])
    if isinstance(pairs, str):
        raise RecordingError(f"pairs={pairs!r} is not known; wanted brackets, next, or a list of pairs.")
    found: list[tuple[int, int]] = []
    for one, other in pairs:
        if isinstance(one, str) and isinstance(other, str):
            found += _of_words(text, one, other, keys)
        elif isinstance(one, int) and isinstance(other, int) and 0 <= one < keys and 0 <= other < keys:
            found.append((one, other))
        else:
            raise RecordingError(
                f"pairs holds {(one, other)!r}; wanted two words, or two positions from 0 to {keys - 1}."
            )
    return found


def _of_words(text: Recording, one: str, other: str, keys: int) -> list[tuple[int, int]]:
    """Each occurrence of a word with the last occurrence before it of another; a word counts at its last
    token."""
    tokens = text.tokens[:keys]
    ends = torch.tensor([len(token.text) for token in tokens]).cumsum(0)
    whole = "".join(token.text for token in tokens)

    def places(word: str) -> list[int]:
        last = [found.end() - 1 for found in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", whole)]
        return torch.searchsorted(ends, torch.tensor(last), right=True).tolist() if last else []

    first, second = places(one), places(other)
    for word, found in ((one, first), (other, second)):
        if not found:
            raise RecordingError(f"the text has no word {word!r}; name words as the text writes them.")
    before = ((at, max((key for key in second if key < at), default=None)) for at in first)
    return [(at, key) for at, key in before if key is not None]


def _findings(tally: Tally, pairs: list[tuple[int, int]], kind: Kind) -> list[Finding]:
    if not pairs:
        return [unfit(kind, "the text has no such pair")] * tally.heads
    offset, flat = tally.k - tally.q, tally.flat
    queries, keys = (torch.tensor(side, device=tally.map.device) for side in zip(*pairs, strict=True))
    queries, keys = queries[queries >= offset], keys[queries >= offset]
    seen = torch.ones(1, len(queries), dtype=torch.bool, device=tally.map.device)
    if flat.mask is not None:
        seen = flat.mask.allows(queries, keys).reshape(-1, len(queries))
    if not seen.any():
        return [unfit(kind, "no query may see the key that it is paired with")] * tally.heads
    live = seen.any(0)
    queries, keys, seen = queries[live], keys[live], seen[:, live]
    even = seen / flat.visible[:, queries - offset].clamp(min=1).double()
    weight = _weights(tally, queries - offset, keys).mean(-1)
    return lifted(
        kind,
        weight,
        even.mean(-1),
        len(queries),
        lambda head: (
            f"{float(weight[head]):.2f} of the weight is on the partner, over {len(queries)} queries"
        ),
        sharpness=tally.sharpness,
    )


def _weights(tally: Tally, queries: Tensor, keys: Tensor) -> Tensor:
    parts = zip(queries.split(CHUNK), keys.split(CHUNK), strict=True)
    return torch.cat([tally.map[0, :, q, k].diagonal(dim1=-2, dim2=-1).double() for q, k in parts], -1)
