"""The evidence for a kind of head, per query: the keys of the kind and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from regard.atlas.flat import Flat
from regard.atlas.kinds.far import unexplained
from regard.atlas.kinds.finding import QUERIES
from regard.atlas.kinds.following import CELLS as ALIGNED
from regard.atlas.kinds.following import NEAR, stretches
from regard.atlas.kinds.places import comb_of
from regard.atlas.kinds.tokens import PLACES
from regard.atlas.passages import PASSAGE
from regard.atlas.repeats import ROWS, apart, sorted_blocks
from regard.atlas.tally import Tally, near_of, tally_of
from regard.atlas.words import Words
from regard.errors import StatisticError
from regard.maps import AttentionMap
from regard.models.sites import APART

__all__ = ["EVIDENCE", "Evidence", "Place", "evidence"]

# Maps with more cells are subsampled: every second query is read, or every third, …, to take about a second.
CELLS = 1 << 29


class Place(NamedTuple):
    """A cell whose key is of the kind; `source` is an earlier occurrence of the query's token, for kinds that
    have one."""

    query: int
    key: int
    weight: float
    source: int | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per query: whether it sees keys of the kind, their total weight, and the heaviest of them.

    A query is a hit if its heaviest key is one of these.
    """

    kind: str
    looks_for: str
    able: Bool[Tensor, " q"]
    weight: Float[Tensor, " q"]
    best: Float[Tensor, " q"]
    key: Int64[Tensor, " q"]
    hit: Bool[Tensor, " q"]
    step: int = 1
    """In long texts, only every `step`-th query is read."""

    @property
    def queries(self) -> int:
        """The number of queries that see a key of the kind."""
        return int(self.able.sum())

    @property
    def hits(self) -> int:
        return int(self.hit.sum())

    @property
    def mean(self) -> float:
        """The mean weight on keys of the kind, over the queries that see one."""
        return float(self.weight[self.able].double().mean()) if self.queries else 0.0

    def places(self, count: int) -> list[Place]:
        """The heaviest cells, at most one per query."""
        best = torch.where(self.able & (self.key >= 0), self.best, -1.0)
        top = best.topk(min(count, len(best)))
        back = {"duplicate token": 0, "induction": 1}.get(self.kind)
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        keys = self.key.tolist()
        return [
            Place(query, keys[query], weight, None if back is None else keys[query] - back)
            for query, weight in found
            if weight > 0
        ]

    def along(self, bins: int) -> list[tuple[float, float, float]]:
        """Per bin of queries along the text: its middle, the mean weight, and the share of hits."""
        q = len(self.able)
        size = max(1, -(-q // bins))
        found = []
        for start in range(0, q, size):
            part = slice(start, min(start + size, q))
            able = self.able[part]
            if able.any():
                mean = float(self.weight[part][able].double().mean())
                found.append(
                    ((part.start + part.stop - 1) / 2, mean, float(self.hit[part][able].double().mean()))
                )
        return found


def evidence(
    seen: AttentionMap,
    kind: str,
    *,
    role: str = "decoder",
    words: Words | None = None,
    top: tuple[Float[Tensor, " q"], Int64[Tensor, " q"]] | None = None,
) -> Evidence:
    """The evidence for a kind in the map of one head; `top` are each row's heaviest weight and key, if known.

    >>> import regard
    >>> x = torch.zeros(1, 1, 6, 8)
    >>> found = evidence(regard.AttentionMap.of(x, x, mask=regard.Causal()), "previous token")
    >>> found.queries, [round(w, 2) for w in found.weight.tolist()], found.places(1)[0].key
    (5, [0.0, 0.5, 0.33, 0.25, 0.2, 0.17], 0)
    """
    if kind not in _LOOKS:
        raise StatisticError(f"no evidence for {kind!r}; there is some for {', '.join(map(repr, _LOOKS))}.")
    if role in APART and kind in _BY_DISTANCE:
        raise StatisticError(
            "queries and keys of cross-attention are of two texts: no distance is between them."
        )
    sentence, look = _LOOKS[kind]
    frame = _Frame(seen, role, words or Words(), top)
    return look(frame, kind, sentence)


class _Frame:
    """One head, and intermediate results that several kinds share."""

    def __init__(
        self, seen: AttentionMap, role: str, words: Words, top: tuple[Tensor, Tensor] | None
    ) -> None:
        self.seen, self.role, self.words = seen, role, words
        self._top, self._tally = top, None
        self.q, self.k = seen.shape[2:]

    @property
    def offset(self) -> int:
        """The position of query 0."""
        return self.k - self.q

    @property
    def top(self) -> tuple[Tensor, Tensor]:
        """Each row's heaviest weight and key."""
        if self._top is None:
            self._top = self.tally.top_weight[0].float(), self.tally.top_key[0]
        return self._top

    @property
    def tally(self) -> Tally:
        """One pass over the whole map."""
        if self._tally is None:
            self._tally = tally_of(self.seen, self.role, self.words)
        return self._tally

    @property
    def first(self) -> int:
        """The first key that any query sees; keys before it are padding."""
        return int((Flat.beside(self.seen).key_counts.amax(0) > 0).long().argmax()) if self.k else 0

    @property
    def near(self) -> int:
        return near_of(self.k)

    def allowed(self, rows: Int64[Tensor, " r"], cols: Int64[Tensor, " c"]) -> Bool[Tensor, "r c"]:
        mask = self.seen.mask
        if mask is None:
            return torch.ones(len(rows), len(cols), dtype=torch.bool)
        found = mask.allows(rows[:, None] + self.offset, cols[None])
        return (
            found.reshape(-1, len(rows), len(cols))[0]
            if found.ndim > 2
            else found.expand(len(rows), len(cols))
        )

    def found(self, kind: str, looks_for: str, blocks: Iterator[_Block], step: int = 1) -> Evidence:
        """Collect the evidence from blocks of cells, each with a flag for the cells of the kind."""
        weight, best = torch.zeros(2, self.q)
        key = torch.full((self.q,), -1, dtype=torch.int64)
        able = torch.zeros(self.q, dtype=torch.bool)
        for rows, cols, wanted in blocks:
            match = wanted & self.allowed(rows, cols)
            if not match.any():
                continue
            tile = torch.where(match, self.seen[0, 0, rows, cols].float().cpu(), 0.0)
            weight[rows] += tile.sum(-1)
            able[rows] |= match.any(-1)
            most, at = torch.where(match, tile, -1.0).max(-1)
            better = (most > best[rows]) | ((most >= 0) & (key[rows] < 0))
            best[rows] = torch.where(better, most, best[rows])
            key[rows] = torch.where(better, cols[at], key[rows])
        return self.judged(kind, looks_for, able, weight, best, key, step)

    def judged(
        self,
        kind: str,
        looks_for: str,
        able: Tensor,
        weight: Tensor,
        best: Tensor,
        key: Tensor,
        step: int = 1,
    ) -> Evidence:
        hit = able & (key == self.top[1].cpu())
        return Evidence(kind, looks_for, able, weight, best, key, hit, step)

    def strips(self) -> Iterator[Int64[Tensor, " r"]]:
        return (torch.arange(start, min(start + ROWS, self.q)) for start in range(0, self.q, ROWS))


_Block = tuple[Tensor, Tensor, Tensor]
_Look = Callable[[_Frame, str, str], Evidence]


def _near(low: Callable[[_Frame], int], high: Callable[[_Frame], int]) -> _Look:
    """Keys at distances from `low` to `high`, both included."""

    def look(frame: _Frame, kind: str, sentence: str) -> Evidence:
        least, most = low(frame), high(frame)

        def blocks() -> Iterator[_Block]:
            for rows in frame.strips():
                positions = rows + frame.offset
                first = max(0, int(positions[0]) - most)
                cols = torch.arange(first, min(frame.k, int(positions[-1]) - least + 1))
                distance = positions[:, None] - cols[None]
                if len(cols):
                    yield rows, cols, (distance >= least) & (distance <= most)

        return frame.found(kind, sentence.format(near=frame.near), blocks())

    return look


def _first(frame: _Frame, kind: str, sentence: str) -> Evidence:
    cols = torch.tensor([frame.first] if frame.k else [], dtype=torch.int64)
    blocks = ((rows, cols, torch.ones(len(rows), len(cols), dtype=torch.bool)) for rows in frame.strips())
    return frame.found(kind, sentence, blocks if frame.k else iter(()))


def _by_token(shift: int) -> _Look:
    def look(frame: _Frame, kind: str, sentence: str) -> Evidence:
        words, places = frame.words, PLACES.get(frame.role, "others")
        if words.q_ids is None or words.k_ids is None:
            raise StatisticError(f"{words.no_ids}: repeats cannot be found.")
        q_ids, k_ids = words.q_ids.cpu(), words.k_ids.cpu()[: max(0, frame.k - shift)]
        counts = torch.bincount(k_ids) if len(k_ids) else k_ids
        known = q_ids < len(counts)
        step = _step(int(counts[q_ids[known]].sum()))
        picked = torch.arange(0, frame.q, step)
        blocks = (
            (rows, cols + shift, same) for rows, cols, same in _same(frame, picked, q_ids, k_ids, places)
        )
        return frame.found(kind, sentence, blocks, step)

    return look


def _same(frame: _Frame, picked: Tensor, q_ids: Tensor, k_ids: Tensor, places: str) -> Iterator[_Block]:
    """For some queries the keys of the same token; see `token_mass`."""
    queries, keys = picked[q_ids[picked].argsort(stable=True)], k_ids.argsort(stable=True)
    for rows, cols in sorted_blocks(q_ids[queries], k_ids[keys], 1):
        at, same = queries[rows.start : rows.stop], keys[cols.start : cols.stop]
        yield at, same, (q_ids[at][:, None] == k_ids[same]) & apart(at + frame.offset, same, places)


def _delimiters(frame: _Frame, kind: str, sentence: str) -> Evidence:
    if frame.words.delimiters is None:
        raise StatisticError(f"{frame.words.no_delimiters}.")
    chosen = frame.words.delimiters.clone()
    chosen[frame.first : frame.first + 1] = False
    cols = chosen.nonzero().flatten()
    step = _step(frame.q * len(cols))

    def blocks() -> Iterator[_Block]:
        for rows in torch.arange(0, frame.q, step).split(ROWS):
            own = (rows[:, None] + frame.offset == cols[None]) & (frame.role not in APART)
            if len(cols):
                yield rows, cols, ~own

    return frame.found(kind, sentence, blocks(), step)


def _strided(frame: _Frame, kind: str, sentence: str) -> Evidence:
    stride, distance = comb_of(frame.tally, 0)
    if not stride:
        return _near(lambda _: distance, lambda _: distance)(frame, kind, f"the key {distance} before")
    cols = torch.arange(frame.k)
    step = _step(frame.q * frame.k)

    def blocks() -> Iterator[_Block]:
        for rows in torch.arange(0, frame.q, step).split(ROWS):
            apart_by = rows[:, None] + frame.offset - cols[None]
            wanted = (apart_by - distance) % stride == 0
            yield rows, cols, wanted & (apart_by != 0) & (apart_by != 1)

    rest = distance % stride or stride
    return frame.found(kind, f"every {stride}th key: distances {rest}, {rest + stride}, …", blocks(), step)


def _retrieval(frame: _Frame, kind: str, sentence: str) -> Evidence:
    """The evidence for repeated passages or for single far keys, whichever has more weight, as in the
    atlas."""
    keys, passages = _far_keys(frame, kind, sentence), _far_passages(frame, kind)
    return passages if passages.queries >= QUERIES and passages.mean >= keys.mean else keys


def _far_passages(frame: _Frame, kind: str) -> Evidence:
    far = 4 * frame.near
    again = frame.words.repeating(far) if frame.role == "decoder" else None
    same: Iterator[_Block] = iter(())
    if again is not None and again.q_ids is not None and again.k_ids is not None:
        same = _same(frame, torch.arange(frame.q), again.q_ids, again.k_ids, "before")
    sentence = f"the token that comes next, where it followed the same {PASSAGE} tokens {far} or more before"
    return frame.found(kind, sentence, same)


def _far_keys(frame: _Frame, kind: str, sentence: str) -> Evidence:
    tally = frame.tally
    reach = (
        tally.positions
        if frame.role == "decoder"
        else torch.maximum(tally.positions, tally.k - 1 - tally.positions)
    )
    able = ((reach >= tally.far) & (tally.flat.visible[0] > 0)).cpu()
    kept = unexplained(tally)[0].cpu() & able
    weight = torch.where(kept, tally.top_weight[0].float().cpu(), 0.0)
    key = torch.where(kept, tally.top_key[0].cpu(), -1)
    return frame.judged(kind, sentence.format(far=tally.far), able, weight, weight, key)


def _alignment(frame: _Frame, kind: str, sentence: str) -> Evidence:
    first, heard = frame.words.said_from, frame.words.heard
    if frame.role != "cross":
        raise StatisticError("only cross-attention follows another text or a sound.")
    if not 1 < frame.q - first <= ALIGNED // frame.k:
        raise StatisticError(f"{frame.q - first} x {frame.k} cells cannot be aligned.")
    seen = frame.seen[0, :1, first:, :heard].float().cpu()
    start, stop = (side[0] for side in stretches(seen, 0 if heard is None else NEAR))
    keys = torch.arange(seen.shape[-1])
    own = seen[0].masked_fill((keys < start[:, None]) | (keys > stop[:, None]), 0.0)
    able = torch.arange(frame.q) >= first
    weight, best = torch.zeros(frame.q), torch.zeros(frame.q)
    key = torch.full((frame.q,), -1)
    weight[first:], (best[first:], key[first:]) = own.sum(-1), own.max(-1)
    return frame.judged(kind, sentence, able, weight, best, key)


def _uniform(frame: _Frame, kind: str, sentence: str) -> Evidence:
    tally = frame.tally
    visible = tally.flat.visible[0].cpu()
    able = visible > 1
    even = tally.entropy[0].float().cpu() / visible.clamp(min=2).float().log()
    nothing = torch.zeros(frame.q)
    nowhere = torch.full((frame.q,), -1)
    return Evidence(
        kind, sentence, able, torch.where(able, even, 0.0), nothing, nowhere, torch.zeros_like(able)
    )


def _step(cells: int) -> int:
    return max(1, math.ceil(cells / CELLS))


_LOOKS: dict[str, tuple[str, _Look]] = {
    "previous token": ("the token before", _near(lambda _: 1, lambda _: 1)),
    "self": ("the token itself", _near(lambda _: 0, lambda _: 0)),
    "first-token sink": ("the first token", _first),
    "duplicate token": ("other places of the same token", _by_token(0)),
    "induction": ("tokens that followed the same token", _by_token(1)),
    "local": ("keys nearer than {near}", _near(lambda frame: 1 - frame.near, lambda frame: frame.near - 1)),
    "strided": ("", _strided),
    "uniform": ("all keys alike; 1 is an even row", _uniform),
    "delimiter": ("punctuation and line breaks", _delimiters),
    "retrieval": ("one key {far} or more away that no simpler rule names", _retrieval),
    "alignment": ("its own stretch of the source, in order", _alignment),
}
_BY_DISTANCE = ("previous token", "self", "local", "strided", "retrieval")
EVIDENCE = tuple(_LOOKS)
