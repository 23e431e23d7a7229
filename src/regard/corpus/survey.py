"""Surveys one text: for every head the scores of all kinds, measures, and the strongest cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.flat import Flat
from regard.atlas.kinds import OF_ONE_TEXT
from regard.atlas.repeats import token_mass
from regard.atlas.tally import SINKS, Tally
from regard.atlas.words import Words
from regard.corpus.held import row_blocks, tallies
from regard.corpus.state import ENTROPY_BINS, MEASURES, OCTAVES, PROFILE_BINS
from regard.maps import AttentionMap

__all__ = ["CELLS_KEPT", "Survey", "joined", "survey"]

# The number of strongest cells to keep per text and head.
CELLS_KEPT = 4
# The number of last queries for the profile: they have the whole text before them.
LAST = 64


@dataclass(frozen=True)
class Survey:
    """The survey of all heads in one text. NaN means that a kind or a measure is undefined for this text."""

    tokens: int
    scores: Float[Tensor, "kinds heads"]
    measures: Float[Tensor, "measures heads"]
    entropy: Int64[Tensor, "heads bins"]
    decay_sum: Float[Tensor, "heads octaves"]
    decay_count: Int64[Tensor, "heads octaves"]
    profile: Float[Tensor, "heads bins"]
    strength: Float[Tensor, "heads cells"]
    query: Int64[Tensor, "heads cells"]
    key: Int64[Tensor, "heads cells"]
    weight: Float[Tensor, "heads cells"]


def survey(maps: list[AttentionMap], role: str, words: Words) -> Survey:
    """Survey the maps of all layers of one text; layers with the same mask are surveyed together."""
    parts: dict[int, Survey] = {}
    groups: list[tuple[Flat, list[int]]] = []
    for place, seen in enumerate(maps):
        flat = Flat.beside(seen)
        for known, members in groups:
            same = known.heads == flat.heads == 1 and seen.shape == maps[members[0]].shape
            if same and known.mask == flat.mask and known.device == flat.device:
                members.append(place)
                break
        else:
            groups.append((flat, [place]))
    for flat, members in groups:
        done = 0
        for tally in tallies([maps[place] for place in members], role, words, flat):
            layers = tally.heads // maps[members[0]].shape[1]
            own = members[done : done + layers]
            norms = torch.cat([_value_norms(maps[place]) for place in own])
            found = _surveyed(tally, norms)
            parts |= dict(zip(own, _split(found, layers), strict=True))
            done += layers
    return _beside([parts[place] for place in range(len(maps))])


def joined(windows: list[Survey]) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, measures and profile of a document: the mean over its windows, weighted by their tokens."""
    if len(windows) == 1:
        one = windows[0]
        return one.scores, one.measures, one.profile
    weight = torch.tensor([window.tokens for window in windows], dtype=torch.float64)
    return tuple(  # pyright: ignore[reportReturnType]
        _mean(torch.stack([getattr(window, name) for window in windows]), weight)
        for name in ("scores", "measures", "profile")
    )


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    """The mean over the first axis, without NaN."""
    weight = weight.view(-1, *[1] * (values.ndim - 1)) * ~values.isnan()
    total = weight.sum(0)
    return torch.where(total > 0, (values.nan_to_num() * weight).sum(0) / total, torch.nan)


def _surveyed(tally: Tally, norms: Float[Tensor, "heads k"]) -> Survey:
    scores = [[_number(found.score) for found in kind.judge(tally, kind)] for kind in OF_ONE_TEXT]
    octave = _octaves(tally.distances.abs())
    sums = tally.distance_sums.new_zeros(tally.heads, OCTAVES)
    counts = tally.flat.distance_counts.new_zeros(tally.heads, OCTAVES)
    live = tally.mass > 0
    cells = _strongest(tally, norms)
    found = Survey(
        tokens=tally.q,
        scores=torch.tensor(scores, dtype=torch.float64),
        measures=_measures(tally, live),
        entropy=_entropies(tally, live),
        decay_sum=sums.index_add_(1, octave, tally.distance_sums),
        decay_count=counts.index_add_(1, octave, tally.flat.distance_counts.expand(tally.heads, -1)),
        profile=_profile(tally),
        **cells,
    )
    return Survey(found.tokens, *(getattr(found, name).cpu() for name in _FIELDS))


def _measures(tally: Tally, live: Tensor) -> Float[Tensor, "measures heads"]:
    count = live.sum(-1)
    rows = count.clamp(min=1)
    first = slice(tally.first, tally.first + SINKS)
    room = tally.flat.visible.expand(tally.heads, -1).double().log()
    choice = live & (room > 0)
    relative = torch.where(choice, tally.entropy / room.clamp(min=1e-12), 0.0)
    total = tally.distance_sums.sum(-1).clamp(min=1e-12)
    measures = {
        "entropy": tally.entropy.sum(-1) / rows,
        "relative_entropy": relative.sum(-1) / choice.sum(-1),
        "mean_distance": (tally.distance_sums * tally.distances.abs()).sum(-1) / total,
        "sink_share": tally.key_sums[:, first].sum(-1) / rows,
        "delimiter_share": _delimiters(tally, rows),
        # Not computed from the maps: a run with importance fills it in.
        "importance": tally.key_sums.new_full((tally.heads,), torch.nan),
        "top_weight": tally.top_weight.sum(-1) / rows,
        **_spans(tally),
    }
    stacked = torch.stack([measures[name].double() for name in MEASURES])
    return torch.where(count > 0, stacked, torch.nan)


def _delimiters(tally: Tally, rows: Tensor) -> Tensor:
    """Mean weight on delimiters, without the first key, which is a sink."""
    flags = tally.words.delimiters
    if flags is None:
        return tally.key_sums.new_full((tally.heads,), torch.nan)
    chosen = flags.to(tally.key_sums.device).clone()
    chosen[tally.first : tally.first + 1] = False
    return tally.key_sums[:, chosen].sum(-1) / rows


def _spans(tally: Tally) -> dict[str, Tensor]:
    """Two measures of queries that end a repeated span of two tokens.

    `span_induction` is the mean weight on the tokens that followed the earlier spans; `span_copy` is the
    share of these queries whose heaviest key is the actual next token.
    """
    nothing = tally.key_sums.new_full((tally.heads,), torch.nan)
    ids = tally.words.q_ids
    if ids is None or len(ids) < 4:
        return {"span_induction": nothing, "span_copy": nothing}
    pairs = torch.stack([torch.cat([ids.new_full((1,), -1), ids[:-1]]), ids])
    _, span = pairs.unique(dim=1, return_inverse=True)
    order = span.argsort(stable=True)
    again = torch.zeros(len(ids), dtype=torch.bool)
    again[order[1:]] = span[order[1:]] == span[order[:-1]]
    again[-1] = False  # nothing follows the last token
    if not again.any():
        return {"span_induction": nothing, "span_copy": nothing}
    device = tally.key_sums.device
    mass = token_mass(tally.map, span, span, shift=1)[:, again.to(device)].double().mean(-1)
    rows = again.nonzero().flatten()
    heaviest = tally.top_key[:, rows.to(device)].cpu()
    hit = (heaviest >= 0) & (ids[heaviest.clamp(min=0)] == ids[rows + 1])
    return {"span_induction": mass, "span_copy": hit.double().mean(-1).to(device)}


def _entropies(tally: Tally, live: Tensor) -> Int64[Tensor, "heads bins"]:
    """A histogram of the queries' entropies, relative to the largest possible."""
    room = tally.flat.visible.expand(tally.heads, -1).double().log()
    chosen = live & (room > 0)
    share = (tally.entropy / room.clamp(min=1e-12)).clamp(0, 1)
    place = (share * ENTROPY_BINS).long().clamp(max=ENTROPY_BINS - 1)
    return place.new_zeros(tally.heads, ENTROPY_BINS).scatter_add_(1, place, chosen.long())


def _profile(tally: Tally) -> Float[Tensor, "heads bins"]:
    """The weight of the last queries on each tenth of the text before them."""
    if tally.q < PROFILE_BINS:
        return tally.key_sums.new_full((tally.heads, PROFILE_BINS), torch.nan)
    count = max(1, min(LAST, tally.q // 16))
    tenth = torch.arange(tally.k, device=tally.key_sums.device) * PROFILE_BINS // tally.k
    sums = tally.key_sums.new_zeros(tally.heads, PROFILE_BINS)
    for _, tile in row_blocks(tally.map, range(tally.q - count, tally.q)):
        sums.index_add_(1, tenth, tile.sum(1).double())
    return sums / count


def _strongest(tally: Tally, norms: Float[Tensor, "heads k"]) -> dict[str, Tensor]:
    """The queries with the strongest cells: weight times the norm of the value, α_ij ‖v_j‖; no sink keys."""
    norms = norms.clone()
    norms[:, tally.first : tally.first + SINKS] = 0
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for _, tile in row_blocks(tally.map, range(tally.q)):
        strength, key = (tile * norms[:, None]).max(-1)
        found.append((strength, key, tile.gather(-1, key[..., None])[..., 0]))
    strength, key, weight = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    kept = min(CELLS_KEPT, tally.q)
    strength, query = strength.double().topk(kept, 1)
    cells = {"strength": strength, "query": query}
    cells |= {"key": key.gather(1, query), "weight": weight.double().gather(1, query)}
    return {name: torch.nn.functional.pad(x, (0, CELLS_KEPT - kept)) for name, x in cells.items()}


def _value_norms(seen: AttentionMap) -> Float[Tensor, "heads k"]:
    p = seen.problem
    return p.v[0].float().norm(dim=-1).repeat_interleave(p.group, 0)


def _octaves(distances: Tensor) -> Tensor:
    """0 for distance 0, b for distances from 2^(b-1) to 2^b - 1: the number of their binary digits."""
    return torch.frexp(distances.double()).exponent.long().clamp(0, OCTAVES - 1)


def _number(score: float | None) -> float:
    return float("nan") if score is None else score


# Which axis heads are on, field by field.
_FIELDS = {name: 1 if name in ("scores", "measures") else 0 for name in Survey.__annotations__} | {}
_FIELDS.pop("tokens")


def _split(found: Survey, layers: int) -> list[Survey]:
    """Split a survey of several layers into one per layer."""
    cut: dict[str, Any] = {n: getattr(found, n).chunk(layers, axis) for n, axis in _FIELDS.items()}
    return [Survey(found.tokens, *(cut[name][layer] for name in _FIELDS)) for layer in range(layers)]


def _beside(parts: list[Survey]) -> Survey:
    """Concatenate the heads of all layers."""
    joint = [torch.cat([getattr(part, name) for part in parts], axis) for name, axis in _FIELDS.items()]
    return Survey(parts[0].tokens, *joint)
