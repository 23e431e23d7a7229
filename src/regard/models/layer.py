"""One watched layer: the segments recorded by its calls, and the map made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.engine.inputs import Options, problem_of
from regard.errors import RecordingError
from regard.maps import AttentionMap, Observation, observe
from regard.masks import And, Coverage, Mask
from regard.models.call import AttentionCall
from regard.models.deferred import Deferred, Observe, may_wait
from regard.models.growing import Part, cropped, joined_mask
from regard.models.rounding import Rounded
from regard.models.segment import Segment, join_biases, join_rows, placed, tensors_of
from regard.models.sites import Site
from regard.models.translate import Frame

__all__ = ["Layer"]


class Layer:
    """The attention of one layer: its map, lazy and exact, and its statistics.

    Generated tokens are appended row by row: then `map` covers the prompt and the generated text, and so do
    row statistics. Statistics of whole maps, such as column mass, cover the prompt only.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.source: Callable[[], list[Segment]] | None = None
        """Reads the segments from disk on first access; None if they were never written."""
        self.stored_bytes = 0
        self.row_stats: frozenset[str] = frozenset()
        """The names of the statistics with one value per row."""
        self.described: str | None = None
        self.rounded: Rounded | None = None
        """How its keys and queries were rounded when they were written; None if they are exact."""
        self.unwritten: str | None = None
        """Why the mask, and with it the map, could not be written to disk; None if it could."""
        self._segments: list[Segment] | None = None
        self._counted = (0, 0)
        self.options: dict[str, Any] = {}
        self._mask: Mask | None = None
        self._grown: list[Part] = []
        """The masks of the calls that a model computed itself, until the mask of all rows is asked for."""
        self.first_mask: Mask | None = None
        self.frame = Frame(0, 0)
        self.whole = True
        """Whether the keys of all rows are known; beam search moves rows between texts."""
        self._map: AttentionMap | None = None
        self._deferred: Deferred | None = None

    @property
    def segments(self) -> list[Segment]:
        """The segments of all calls in order: the prompt, then generated tokens."""
        self.settle()
        return self._settled

    @property
    def _settled(self) -> list[Segment]:
        """The segments without the rows that are still to be observed."""
        if self._segments is None:
            self._segments = [] if self.source is None else self.source()
        return self._segments

    @segments.setter
    def segments(self, segments: list[Segment]) -> None:
        self._segments, self._counted = segments, (0, 0)

    @property
    def mask(self) -> Mask | None:
        """The mask of all recorded rows."""
        if len(self._grown) > 1:
            last = self._grown[-1]
            self.mask = joined_mask(self._grown)
            self._grown = [Part(self._mask, sum(part.q for part in self._grown), last.k)]
        return self._mask

    @mask.setter
    def mask(self, mask: Mask | None) -> None:
        self._mask, self._grown = mask, []

    @property
    def index(self) -> int:
        return self.site.index

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def role(self) -> str:
        return self.site.role

    @property
    def rows(self) -> int:
        # Read for every generated token, so only new segments are counted.
        counted, rows = self._counted
        rows += sum(segment.rows for segment in self._settled[counted:])
        self._counted = len(self._settled), rows
        return rows if self._deferred is None else rows + self._deferred.rows

    @property
    def batch(self) -> int:
        """How many rows its batch has; 0 before the first call."""
        return self._settled[0].lse.shape[0] if self._settled else 0

    @property
    def keys(self) -> int:
        """The number of keys of the map."""
        known = self.segments if self.whole else self.segments[:1]
        return sum(0 if segment.k is None else segment.k.shape[2] for segment in known)

    @property
    def prompt(self) -> int:
        """The number of rows of the first call; later rows were generated."""
        return self._settled[0].rows if self._settled else 0

    @property
    def stats(self) -> dict[str, Any]:
        """Every statistic by name; row statistics are joined over all calls."""
        found = dict(self.segments[0].stats)
        for name in self._appended():
            found[name] = join_rows([segment.stats[name] for segment in self.segments])
        return found

    def rows_of(self, name: str) -> range:
        """Which rows a statistic is about: all, or the first call's where it is about whole columns or maps.

        Those of all rows are `layer.map.stats(...)`, which reads the map that `generate()` left.
        """
        partial = len(self.segments) > 1 and name in self.segments[0].stats and name not in self._appended()
        return range(self.prompt if partial else self.rows)

    @property
    def trace(self) -> dict[str, Any]:
        """The row statistics of the generated tokens only, including the heaviest keys of each."""
        if len(self.segments) < 2:
            return {}
        later = self.segments[1:]
        names = [name for name in later[0].stats if all(name in segment.stats for segment in later)]
        return {name: join_rows([segment.stats[name] for segment in later]) for name in names}

    @property
    def lse(self) -> Tensor:
        return torch.cat([segment.lse for segment in self.segments], 2)

    @property
    def map(self) -> AttentionMap:
        """The attention map of all recorded rows."""
        self.settle()
        if self._map is None:
            self._map = self._joined()
        return self._map

    def reweighed(self) -> AttentionMap:
        """The map with the log-sum-exp that its queries and keys have, whatever was recorded."""
        p = self._joined().problem
        seen = observe(p.q, p.k, p.v, stats=(), mask=p.mask, bias=p.scoring.bias, **self.options)
        return AttentionMap(p, seen.lse.detach())

    @property
    def nbytes(self) -> int:
        """The size of its tensors in bytes, in memory or on disk."""
        self.settle()
        if self._segments is None:
            return self.stored_bytes
        return sum(x.numel() * x.element_size() for segment in self.segments for x in _tensors(segment))

    @property
    def mask_text(self) -> str:
        """The mask as text; available even if the mask itself could not be written to disk."""
        return self.described or repr(self.mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        stats = self.stats if self.segments else {}
        if name in stats:
            return stats[name]
        known = ", ".join(stats) or "none"
        raise AttributeError(f"{name!r} was not observed; observed were: {known}. Ask for it in stats=[...].")

    def __repr__(self) -> str:
        generated = ""
        if self.rows > self.prompt:
            generated = f", generated={self.rows - self.prompt}"
            partial = [name for name in self.segments[0].stats if len(self.rows_of(name)) < self.rows]
            if partial:
                generated += f" (not in {', '.join(partial)})"
        return f"Layer({self.site}, rows={self.rows}{generated}, mask={self.mask_text})"

    def begin(self, call: AttentionCall, seen: Observation, keep: bool) -> None:
        """Start over with the rows of a first call."""
        self._map = None
        self.whole = True
        self.frame, self.mask, self.first_mask = call.frame, seen.map.mask, seen.map.mask
        if call.own:
            self._grown = [Part(self._mask, call.frame.q, call.frame.k)]
        self.described = None
        self.options = {name: call.options[name] for name in ("scale", "softcap", "sink")}
        self.options["scale"] = seen.map.problem.scoring.scale
        stats = {name: placed(value, call.frame.k_start) for name, value in seen.stats.items()}
        kept: dict[str, Any] = {}
        if keep:
            p = seen.map.problem
            kept = {"q": p.q, "k": p.k, "v": p.v, "bias": _full_bias(call)}
            self._map = seen.map
        self.segments = [Segment(seen.lse.detach(), stats, **kept)]

    def extend(self, call: AttentionCall, seen: Observation, keep: bool) -> None:
        """Append the rows of a later call over the same text."""
        self._map = None
        frame, p = call.frame, seen.map.problem
        stats = {name: placed(value, frame.k_start) for name, value in seen.stats.items()}
        self.whole = self.whole and self._continues(call)
        kept: dict[str, Any] = {}
        if keep and self.whole:
            new = 0 if self.role == "cross" else frame.q
            kept = {"q": p.q, "bias": _full_bias(call)}
            # Copy, because a view of one new key would keep the whole cache alive.
            kept |= {"k": p.k[:, :, p.k_len - new :].clone(), "v": p.v[:, :, p.k_len - new :].clone()}
        self.segments.append(Segment(seen.lse.detach(), stats, **kept))
        if call.plan is not None and self.whole:
            keys = self.frame.k + (0 if self.role == "cross" else self.rows - self.prompt)
            mask = call.plan.over(replace(self.frame, q=self.rows, k=keys))
            self.whole = _hides(mask, range(keys - frame.q, keys), frame.k_start - self.frame.k_start)
            self.mask = mask if self.whole else self.mask
        elif call.own and self.whole and self.role != "cross":
            self._grown.append(Part(seen.map.mask, frame.q, frame.k))

    def defer(self, call: AttentionCall, observe: Observe) -> bool:
        """Keep the rows of a call until the layer is read; then `observe` extends it.

        False if they cannot wait.
        """
        if self.role == "cross" or not (self.whole and may_wait(call)):
            return False
        if self._deferred is None or not self._deferred.add(call):
            self.settle()
            self._deferred = Deferred(call, observe)
        self._map = None
        return True

    def settle(self) -> None:
        """Observe the rows that wait."""
        deferred, self._deferred = self._deferred, None
        if deferred is None:
            return
        try:
            deferred.finish()
        except BaseException:
            self._deferred = deferred
            raise

    @property
    def loaded(self) -> bool:
        """Whether its tensors have been read, or were never on disk."""
        return self._segments is not None

    def own(self) -> None:
        """Copy what the map is made from, because the model may write over it."""
        self.segments = [segment.copied() for segment in self.segments]
        self._map = None

    def drop(self, stored: Layer) -> None:
        """Free the tensors; from now on they are read from disk."""
        self.source, self.stored_bytes = stored.source, stored.stored_bytes
        self.rounded = stored.rounded
        self._segments = self._map = None
        self._counted = (0, 0)

    def crop(self, rows: int) -> None:
        """Drop all rows after the first `rows`: assisted generation takes back rejected tokens."""
        self._map = None
        kept: list[Segment] = []
        for segment in self.segments:
            left = rows - sum(other.rows for other in kept)
            if 0 < left < segment.rows:
                known = 0 if segment.k is None else segment.k.shape[2]
                taken = 0 if self.role == "cross" else segment.rows - left
                segment = segment.crop(left, max(0, known - taken), self.row_stats)
                if not kept:
                    self.frame = replace(self.frame, q=left, k=self.frame.k - taken)
            if left > 0:
                kept.append(segment)
        self.segments = kept
        if self._grown and self.role != "cross":
            mask, (part, *_) = self.mask, self._grown
            keys = part.k - (part.q - rows)
            self.mask = cropped(part._replace(mask=mask), rows)
            self._grown = [Part(self._mask, rows, keys)]

    def _continues(self, call: AttentionCall) -> bool:
        """Whether the keys of this call are the keys recorded so far, followed by new ones."""
        before = self.segments[-1].k
        if self.role == "cross":
            first = self.segments[0].k
            return first is None or first.shape == call.k.shape
        if call.plan is None:
            keys = self.keys if before is not None else call.k.shape[2] - call.frame.q
            grown = call.own and call.k.shape[2] == keys + call.frame.q
            if not grown or before is None:
                return grown
        place = call.k.shape[2] - call.frame.q - 1
        if before is None or place < 0:
            return True
        return before.shape[0] == call.k.shape[0] and torch.equal(before[:, :, -1], call.k[:, :, place])

    def _appended(self) -> list[str]:
        if len(self.segments) < 2:
            return []
        return [name for name in self.segments[0].stats if all(name in s.stats for s in self.segments)]

    def check_head(self, head: int) -> None:
        """Raise RecordingError, with the valid range, unless the layer has this head."""
        heads = self.map.shape[1]
        if not 0 <= head < heads:
            raise RecordingError(f"layer {self.index} has no head {head}; its heads are 0 to {heads - 1}.")

    def _joined(self) -> AttentionMap:
        segments = self.segments
        if not segments or segments[0].q is None:
            raise RecordingError(
                f"the map of {self.site} was not kept; watch with keep_maps=True to read it, or ask for "
                "statistics in stats=[...]."
            )
        if self.unwritten is not None:
            raise RecordingError(f"the map of {self.site} cannot be read from disk: {self.unwritten}")
        if not self.whole:
            # Statistics of later rows are correct, but the batch rows moved, so their keys are unknown.
            segments = segments[:1]
        parts = {name: [getattr(s, name) for s in segments] for name in ("q", "k", "v", "lse")}
        q, k, v, lse = (x[0] if len(x) == 1 else torch.cat(x, 2) for x in parts.values())
        mask = self.mask if self.whole else self.first_mask
        options = Options(mask, bias=join_biases([s.bias for s in segments], k.shape[2]), **self.options)
        return AttentionMap(problem_of(q, k, v, options), lse)


def _hides(mask: Mask | None, rows: range, dropped: int) -> bool:
    """Whether a mask hides the keys that a cache has dropped; if not, rows saw fewer keys than it allows."""
    if dropped <= 0:
        return True
    parts = () if mask is None else mask.parts if isinstance(mask, And) else (mask,)
    return any(part.coverage(rows, (0, dropped)) is Coverage.EMPTY for part in parts)


def _full_bias(call: AttentionCall) -> Tensor | None:
    """The bias with a column for every key, so that it can be joined with those of other calls."""
    if call.bias is None:
        return None
    bias = call.bias.detach()
    bias = bias.view((1,) * (4 - bias.ndim) + tuple(bias.shape))
    return bias.expand(-1, -1, call.q.shape[2], call.k.shape[2])


def _tensors(segment: Segment) -> list[Tensor]:
    plain = [segment.lse, segment.q, segment.k, segment.v, segment.bias]
    stats = [x for value in segment.stats.values() for x in tensors_of(value)]
    return [x for x in plain if x is not None] + stats
