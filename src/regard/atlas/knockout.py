"""`knockout`: what a model would predict without some of its attention."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.atlas.anatomy import Anatomy
from regard.atlas.cutting import INSTEAD, cutting
from regard.atlas.edges import Edge, Span, cuts_of
from regard.atlas.reading import Reading, Tokens, ids_of, place_of, read
from regard.atlas.results import plain, shown, table_of
from regard.errors import MapError
from regard.extension import extension_point

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from rich.table import Table

__all__ = ["Candidate", "Knockout", "divergence", "knockout"]


@dataclass(frozen=True)
class Candidate:
    """A token that might come next: its probability before and after the cut, and the change of its logit."""

    id: int
    text: str | None
    before: float
    after: float
    logit_change: float


@dataclass(frozen=True)
class Knockout:
    """How a cut changed the model's prediction at position `at`, and its loss over the whole text.

    `kl` is KL(before ‖ after) in nats. `before` and `after` are the likeliest next tokens of the two
    predictions; `target` is the actual next token, None at the end of the text. Losses are nats per token;
    None for a text of one token, and for models that see later tokens.
    """

    at: int
    tokens: int
    kl: float
    before: tuple[Candidate, ...]
    after: tuple[Candidate, ...]
    target: Candidate | None
    loss_before: float | None
    loss_after: float | None

    @property
    def loss_change(self) -> float | None:
        """The loss that the cut adds, in nats per token; below 0 if the model does better without."""
        if self.loss_before is None or self.loss_after is None:
            return None
        return self.loss_after - self.loss_before

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return {**plain(self), "loss_change": self.loss_change}

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per token that is likely before or after the cut, or is the actual next one."""
        target = () if self.target is None else (self.target,)
        listed = {one.id: one for one in (*self.before, *self.after, *target)}
        return [{**asdict(one), "target": one in target} for one in listed.values()]

    @extension_point
    def to_pandas(self) -> pandas.DataFrame:
        """One row per token, as `rows`."""
        ...

    @extension_point
    def to_arrow(self) -> pyarrow.Table:
        """One row per token, as `rows`."""
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """What a notebook shows."""
        ...

    def table(self) -> Table:
        """The likeliest tokens before and after, for Rich."""
        target = () if self.target is None else (self.target,)
        listed = {one.id: one for one in (*self.before, *self.after, *target)}
        rows = [
            [
                shown(one.id, one.text) + (" ←" if self.target and one.id == self.target.id else ""),
                f"{one.before:.2%}",
                f"{one.after:.2%}",
                f"{one.logit_change:+.2f}",
            ]
            for one in listed.values()
        ]
        caption = None if self.target is None else "← the token that comes next in the text"
        return table_of(str(self), ["next token", "before", "after", "Δ logit"], rows, caption)

    def __str__(self) -> str:
        loss = ""
        if self.loss_change is not None:
            loss = f", loss {self.loss_before:.3f} → {self.loss_after:.3f} ({self.loss_change:+.3f})"
        return f"at token {self.at} of {self.tokens}: KL {self.kl:.4f} nats{loss}"


def knockout(
    model: Any,
    tokens: Tokens,
    *,
    heads: Iterable[tuple[Span, Span]] = (),
    edges: Iterable[Edge | tuple[Span, Span, Span, Span]] = (),
    keys: Span = (),
    at: int = -1,
    instead: str = "zero",
    tokenizer: Any = None,
    top: int = 5,
    progress: Callable[[int, int], None] | None = None,
) -> Knockout:
    """Cut edges of a model's attention, run it, and compare its next-token predictions.

    An edge is cut before softmax: its score is −inf and the rest of its row is renormalised. `edges` are
    `Edge(layer, head, query, key)`, each a number, a range, a list, or None for all; `heads` are pairs
    (layer, head) that see nothing at all, so that their output is 0; `keys` are tokens that no query sees, in
    any layer. All cuts given are made together. `tokens` are the ids of one text, or the text itself with a
    `tokenizer`, which also gives the answer words. Cuts are masks and not matrices, so this works at any
    length.

    `instead` says what `heads` give in place of their output: "zero"; "mean", the mean of their outputs up to
    each token; "resample", their output at a random earlier token. `progress(done, total)` is called after
    every layer.

    >>> from regard.models import bundled
    >>> model, tokenizer = bundled()
    >>> text = "The heron was called Osgood. The badger said to the heron, whose name was Os"
    >>> cut = knockout(model, text, tokenizer=tokenizer, heads=[(4, 1), (3, 5)])
    >>> cut.before[0].text, round(cut.before[0].before, 2), round(cut.before[0].after, 2)
    ('g', 1.0, 0.04)
    """
    if instead not in INSTEAD:
        raise MapError(f"instead is {instead!r}; wanted one of {', '.join(map(repr, INSTEAD))}.")
    ids = ids_of(model, tokens, tokenizer)
    n = ids.shape[1]
    place = place_of(at, n)
    anatomy = Anatomy.of(model, ids)
    found = cuts_of(anatomy, n, heads, edges, keys)
    cuts = {layer: replace(cut, instead=instead) for layer, cut in found.items()}
    with cutting(model, anatomy) as cutter:
        if progress is not None:
            cutter.attended = _counting(2 * len(anatomy.heads), progress)
        cutter.begin({})
        before = read(model, ids, [place])
        cutter.begin(cuts)
        after = read(model, ids, [place])
    losses = [_mean_loss(reading, cutter.causal) for reading in (before, after)]
    logits = before.logits[0, 0].double().cpu(), after.logits[0, 0].double().cpu()
    listed = [side.topk(min(top, len(side))).indices.tolist() for side in logits]
    following = [int(ids[0, place + 1])] if place + 1 < n else []
    known = {token: _candidate(token, *logits, tokenizer) for token in {*listed[0], *listed[1], *following}}
    return Knockout(
        at=place,
        tokens=n,
        kl=float(divergence(*logits)),
        before=tuple(known[token] for token in listed[0]),
        after=tuple(known[token] for token in listed[1]),
        target=known[following[0]] if following else None,
        loss_before=losses[0],
        loss_after=losses[1],
    )


def divergence(
    before: Float[Tensor, "*rows vocabulary"], after: Float[Tensor, "*rows vocabulary"]
) -> Float[Tensor, "*rows"]:
    """KL(before ‖ after) of two predictions given as logits, in nats.

    >>> import torch
    >>> divergence(torch.zeros(2), torch.tensor([0.0, 100.0]))
    tensor(49.3069, dtype=torch.float64)
    """
    before, after = before.double().log_softmax(-1), after.double().log_softmax(-1)
    return (before.exp() * (before - after)).sum(-1).clamp(min=0.0)


def _counting(total: int, progress: Callable[[int, int], None]) -> Callable[[], None]:
    """Counts calls: a model may attend more often than it has layers."""
    calls = itertools.count(1)
    return lambda: progress(min(next(calls), total), total)


def _mean_loss(reading: Reading, causal: bool) -> float | None:
    return None if reading.losses is None or not causal else float(reading.losses.double().mean())


def _candidate(token: int, before: Tensor, after: Tensor, tokenizer: Any) -> Candidate:
    text = None if tokenizer is None else tokenizer.decode([token])
    was, now = (float(side.softmax(-1)[token]) for side in (before, after))
    return Candidate(token, text, was, now, float(after[token] - before[token]))
