"""`atlas`: survey every head of a recording."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from regard.atlas.choice import chosen_text
from regard.atlas.decay import fit_decay
from regard.atlas.flat import Flat
from regard.atlas.kinds import KINDS
from regard.atlas.tally import SINKS, Tally, late_decay, tally_of
from regard.atlas.words import Words, words_of
from regard.cards import Atlas, HeadCard
from regard.extension import implements
from regard.maps import AttentionMap
from regard.models import Recording
from regard.models.sites import APART
from regard.stats import DecayCurve

__all__ = ["atlas", "cards_of"]


def atlas(
    recording: Recording,
    *,
    stack: str | None = None,
    row: int = 0,
    delimiters: Collection[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Atlas:
    """Survey every head: its statistics, and a score from 0 to 1 with evidence for every kind of head.

    By default all stacks are surveyed. `row` is the text of the batch, surveyed as if it had been read alone,
    without padding. `delimiters` are token ids; by default punctuation and line breaks, for which the
    recording needs its tokenizer. This takes one pass over each map and gathers by token: memory grows with
    the length, time with its square. `progress(done, total)` is called after every layer. docs/atlas.md has
    the formula of every kind.

    >>> from regard.models import bundled, watch
    >>> model, tokenizer = bundled()
    >>> ids = torch.randint(3, 4096, (1, 64), generator=torch.Generator().manual_seed(0))
    >>> with watch(model) as recording:
    ...     out = model(ids.repeat(1, 2))
    >>> best = atlas(recording).kinds["induction"][0]
    >>> best.layer, round(best.score("induction"), 1)
    (5, 1.0)
    """
    text, layers = chosen_text(recording, stack, row)
    flats: list[Flat] = []
    words: dict[tuple[str, int, int], Words] = {}
    cards: list[HeadCard] = []
    for done, layer in enumerate(layers):
        seen = layer.map
        name = (layer.role, *seen.shape[2:])
        if name not in words:
            words[name] = words_of(text, layer, delimiters)
        cards += cards_of(seen, layer.role, layer.index, words[name], _shared(flats, seen))
        if progress is not None:
            progress(done + 1, len(layers))
    ids = next(iter(text.token_ids.values()), None)
    tokens = layers[0].map.shape[3] if ids is None else ids.shape[1]
    return Atlas(_name(recording), tokens, tuple(cards))


@implements(Recording.atlas)
def _atlas_of(self: Recording, progress: Callable[[int, int], None] | None = None) -> Atlas:
    return atlas(self, progress=progress)


def _name(recording: Recording) -> str:
    """The model's name, or its class if the name is a local path."""
    name = recording.model.name
    return recording.model.kind if Path(name).is_absolute() else name


def cards_of(
    seen: AttentionMap,
    role: str = "decoder",
    layer: int = 0,
    words: Words | None = None,
    flat: Flat | None = None,
) -> list[HeadCard]:
    """The cards of one map with one batch row: of any queries and keys, recorded or not."""
    tally = tally_of(seen, role, words, flat)
    curves = late_decay(seen, tally.k // 2, 0, SINKS) if role not in APART else []
    findings = [kind.judge(tally, kind) for kind in KINDS]
    return [
        HeadCard(
            role,
            layer,
            head,
            {kind.name: found[head] for kind, found in zip(KINDS, findings, strict=True)},
            _statistics(tally, head) | _decay(curves, role, head),
        )
        for head in range(tally.heads)
    ]


def _shared(flats: list[Flat], seen: AttentionMap) -> Flat:
    """The flat head of an earlier layer with the same mask, so that chance is computed once per mask."""
    new = Flat.beside(seen)
    for flat in flats:
        same = (flat.q, flat.k, flat.heads, flat.device) == (new.q, new.k, new.heads, new.device)
        if same and (flat.mask is new.mask or flat.mask == new.mask):
            return flat
    flats.append(new)
    return new


def _statistics(tally: Tally, head: int) -> dict[str, Any]:
    """Means over the queries that see any key, and the fit of the decay."""
    live = max(1, int((tally.mass[head] > 0).sum()))
    total = max(float(tally.mass[head].sum()), 1e-12)
    first = slice(tally.first, tally.first + SINKS)
    found: dict[str, Any] = {
        "entropy": float(tally.entropy[head].sum()) / live,
        "top_weight": float(tally.top_weight[head].sum()) / live,
        "sink_mass": float(tally.key_sums[head, first].sum()) / live,
        "heaviest_key": int(tally.key_sums[head].argmax()),
        "heaviest_key_mass": float(tally.key_sums[head].max()) / total,
    }
    if tally.role not in APART:
        sums = tally.distance_sums[head]
        found["mean_distance"] = float((sums * tally.distances).sum()) / total
        found["window_90"] = _window(tally, head, 0.9)
        found["heaviest_distance"] = int(tally.distances[sums.argmax()])
        found["heaviest_distance_mass"] = float(sums.max()) / total
    return found


def _window(tally: Tally, head: int, share: float) -> int:
    """The smallest w such that keys nearer than w hold a given share of all weight."""
    near = torch.zeros(int(tally.distances.abs().max()) + 1, dtype=torch.float64)
    near.index_add_(0, tally.distances.abs().cpu(), tally.distance_sums[head].cpu())
    held = near.cumsum(0)
    return int((held < share * held[-1]).sum()) + 1


def _decay(curves: list[DecayCurve], role: str, head: int) -> dict[str, Any]:
    """The power law with all keys, and without the first ones."""
    found: dict[str, Any] = {}
    for name, curve, skipped in zip(("gamma", "gamma_without_sinks"), curves, (0, SINKS), strict=False):
        one = DecayCurve(curve.distance, curve.mean[0, head], curve.count[0, head])
        fit = fit_decay(one, (role, 0, head), skipped)
        low, high = fit.interval or (None, None)
        found |= {name: fit.gamma, f"{name}_low": low, f"{name}_high": high}
        if not skipped:
            found |= {"decay_r2": fit.r2, "decay_better": fit.better, "decay_last": fit.last}
            found |= {"decay_note": fit.refused or fit.note}
    return found
