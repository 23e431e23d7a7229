"""Questions about a text, answered from the attention in a recording."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.models import Layer
from regard.viewer.answers import Farthest, Finder, Questions, Returning

__all__ = ["questions"]

# The most returns to examine, longest absences first, and the most returns of one word.
RETURNS, OF_A_NAME = 24, 3
# The number of heads to report, and the least share of a row that counts as attending.
NAMED, LOOKING = 6, 0.1
# The least share of a row on earlier mentions with which a head bridges the absence.
CLEAR = 0.5
# Thresholds of weight for the farthest pair, the highest first; and the number of candidates to try.
BARS, TRIED = (0.3, 0.1), 400
# The first keys, which act as attention sinks.
FIRST = 16
# The most cells in memory at once.
CELLS = 1 << 25
SHORTEST = 3
WORD = re.compile(r"\w[\w'’]*\w")
STARTS = "“‘\"'(—-"


@dataclass(frozen=True)
class _Mention:
    """One mention of a word, as tokens from `start` to before `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class _Return:
    """A word that is mentioned again after an absence: all its mentions, and the one after the absence."""

    word: str
    mentions: tuple[_Mention, ...]
    number: int

    @property
    def query(self) -> int:
        return self.mentions[self.number].start

    @property
    def gap(self) -> int:
        return self.query - self.mentions[self.number - 1].start

    @property
    def keys(self) -> list[int]:
        """The tokens of all earlier mentions."""
        return [i for one in self.mentions[: self.number] for i in range(one.start, one.stop)]


def questions(layers: list[Layer], tokens: dict[str, Any]) -> Questions:
    """Questions about a self-attention stack; `tokens` are those of `tokens_of`."""
    count = len(tokens["ids"])
    if not layers or any(layer.map.shape[2] != count or layer.map.shape[3] != count for layer in layers):
        return Questions(returning=None, farthest=None)
    return Questions(
        returning=_returning(layers, _returns(tokens)), farthest=_farthest(layers, tokens["pieces"])
    )


def _returns(tokens: dict[str, Any]) -> list[_Return]:
    """Words that return after a long absence; names, if the text has any."""
    found: list[_Return] = []
    for word, mentions in _names(tokens).items():
        several = tuple(mentions)
        away = [_Return(word, several, number) for number in range(1, len(several))]
        found += sorted(away, key=lambda one: one.gap, reverse=True)[:OF_A_NAME]
    return sorted(found, key=lambda one: one.gap, reverse=True)[:RETURNS]


def _names(tokens: dict[str, Any]) -> dict[str, list[_Mention]]:
    """Names: words that are always capitalised, also within sentences; if there are none, words that occur
    twice."""
    text = tokens["text"]
    names: dict[str, list[_Mention]] = defaultdict(list)
    within, small, others = set[str](), set[str](), defaultdict[str, list[_Mention]](list)
    for match in WORD.finditer(text):
        word = match[0]
        mention = _tokens_of(tokens, *match.span())
        if mention is None or not word[0].isalpha() or len(word) < SHORTEST:
            continue
        if word[0].isupper() and not word.isupper():
            names[word].append(mention)
            if _within_sentence(text, match.start()):
                within.add(word)
        else:
            small.add(word.lower())
            others[word].append(mention)
    known = {word: found for word, found in names.items() if word in within and word.lower() not in small}
    several = {word: found for word, found in known.items() if len(found) > 1}
    return several or {word: found for word, found in others.items() if len(found) > 1 and len(word) > 3}


def _within_sentence(text: str, at: int) -> bool:
    before = text[max(0, at - 8) : at].rstrip(STARTS + " \t")
    return bool(before) and (before[-1].isalnum() or before[-1] in ",;")


def _tokens_of(tokens: dict[str, Any], start: int, stop: int) -> _Mention | None:
    """The tokens that contain these characters."""
    first = bisect_right(tokens["stops"], start)
    last = bisect_left(tokens["starts"], stop)
    return _Mention(first, last) if first < last else None


def _returning(layers: list[Layer], returns: list[_Return]) -> Returning | None:
    """The longest absence that a head clearly bridges, with the heads that attend to earlier mentions."""
    if not returns:
        return None
    shares = torch.stack([torch.cat(list(_shares(layer, returns)), 1) for layer in layers])
    best_of_each = shares.amax((0, 1))
    clear = (best_of_each >= CLEAR).nonzero()
    at = int(clear[0]) if len(clear) else int(best_of_each.argmax())
    chosen, share = returns[at], shares[:, :, at]
    heads = share.shape[1]
    best = share.flatten().topk(min(NAMED, share.numel()))
    finders = [
        Finder(layer=layers[i // heads].index, head=i % heads, weight=weight)
        for i, weight in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    layer = layers[int(best.indices[0]) // heads]
    row = layer.map[0, finders[0].head, chosen.query].float().cpu()
    key = max(chosen.keys, key=lambda i: float(row[i]))
    return Returning(
        word=chosen.word,
        mentions=len(chosen.mentions),
        query=chosen.query,
        key=key,
        gap=chosen.gap,
        finders=[one for i, one in enumerate(finders) if i == 0 or one.weight >= LOOKING],
    )


def _shares(layer: Layer, returns: list[_Return]) -> Iterator[Tensor]:
    """(heads, returns): the share of each return's row on earlier mentions."""
    heads, keys = layer.map.shape[1], layer.map.shape[3]
    step = max(1, CELLS // (heads * keys))
    for start in range(0, len(returns), step):
        part = returns[start : start + step]
        rows = layer.map[0, :, [one.query for one in part]].float().cpu()
        yield torch.stack([rows[:, i, one.keys].sum(-1) for i, one in enumerate(part)], 1)


def _farthest(layers: list[Layer], pieces: list[str]) -> Farthest | None:
    """The longest distance from a word to the word that it attends to most."""
    for bar in BARS:
        found = [one for layer in layers if (one := _farthest_of(layer, pieces, bar)) is not None]
        if found:
            return max(found, key=lambda one: one.distance)
    return None


def _farthest_of(layer: Layer, pieces: list[str], bar: float) -> Farthest | None:
    top = layer.stats.get("max_score")
    if top is None:
        return None
    key = top.key[0].cpu()
    weight = (top.value[0] - layer.lse[0]).float().exp().cpu()
    count = key.shape[1]
    distance = torch.where((weight >= bar) & (key >= FIRST), torch.arange(count) - key, -1).flatten()
    far = distance.topk(min(TRIED, len(distance)))
    for i, away in zip(far.indices.tolist(), far.values.tolist(), strict=True):
        head, query = divmod(i, count)
        looked = int(key[head, query])
        if away > 0 and _is_word(pieces[query]) and _is_word(pieces[looked]):
            return Farthest(
                layer=layer.index,
                head=head,
                query=query,
                key=looked,
                weight=float(weight[head, query]),
                distance=away,
            )
    return None


def _is_word(piece: str) -> bool:
    return sum(letter.isalpha() for letter in piece) > 1
