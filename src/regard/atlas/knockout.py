"""`knockout`: cut some of a model's attention and compare its predictions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.asking import Answer, Question, question_of
from regard.atlas.cutting import INSTEAD, cutting
from regard.atlas.edges import Edge, Head, Span, cuts_of
from regard.atlas.reading import Tokens, place_of
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
    predictions; `target` is the actual next token, None at the end of the text. Losses are nats per token.
    Both are None for a text of one token, and for models that see later tokens.

    For models with a single output, such as classifiers, `at` is None. Models without a head have no
    prediction: `kl` is None, and `similarity` is the cosine of their states before and after.
    """

    at: int | None
    tokens: int
    kl: float | None
    before: tuple[Candidate, ...]
    after: tuple[Candidate, ...]
    target: Candidate | None
    loss_before: float | None
    loss_after: float | None
    similarity: float | None = None

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
        """The HTML that a notebook shows."""
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
        where = f"over {self.tokens} tokens" if self.at is None else f"at token {self.at} of {self.tokens}"
        if self.kl is None:
            return f"{where}: cosine {self.similarity:.4f} of the states before and after"
        loss = ""
        if self.loss_change is not None:
            loss = f", loss {self.loss_before:.3f} → {self.loss_after:.3f} ({self.loss_change:+.3f})"
        return f"{where}: KL {self.kl:.4f} nats{loss}"


def knockout(
    model: Any,
    tokens: Tokens,
    *,
    heads: Iterable[Head] = (),
    edges: Iterable[Edge | tuple[Span, Span, Span, Span]] = (),
    keys: Span = (),
    at: int | None = -1,
    instead: str = "zero",
    written: Tokens | None = None,
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

    An encoder–decoder reads `tokens`; `written` are the tokens that the decoder has written, and `at` is a
    position in them; by default it has written only the start token. Layers are then the decoder's; name
    others by their stack: heads=[("cross", 1, 3)], Edge(..., stack="encoder"). `keys` are tokens of the
    input. For a model that takes images or sounds, `tokens` is a dict of the arguments of its pass.
    Classifiers are compared by their classes, and models without a head by their states, at a token or, with
    at=None, the mean of all.

    `instead` is the replacement for the output of `heads`: "zero"; "mean", the mean of their outputs up to
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
    question = question_of(model, tokens, written, tokenizer)
    if question.ids is not None and at is not None:
        # Check before the model runs, which may take minutes.
        place_of(at, question.ids.shape[1])
    anatomy = question.anatomy(model)
    found = cuts_of(anatomy, heads, edges, keys, question.readers)
    cuts = {place: replace(cut, instead=instead) for place, cut in found.items()}
    with cutting(model, anatomy) as cutter:
        if progress is not None:
            cutter.attended = _counting(2 * len(anatomy.sites), progress)
        cutter.begin({})
        before = question.ask(model, at)
        cutter.begin(cuts)
        after = question.ask(model, at)
    if before.kind == "states":
        alike = torch.nn.functional.cosine_similarity(before.values, after.values, dim=0)
        return Knockout(before.at, before.tokens, None, (), (), None, None, None, float(alike))
    logits = before.values, after.values
    listed = [side.topk(min(top, len(side))).indices.tolist() for side in logits]
    following = _following(question, before) if cutter.causal else []
    names = _names(model, before, tokenizer)
    known = {token: _candidate(token, *logits, names) for token in {*listed[0], *listed[1], *following}}
    losses = [answer.loss if cutter.causal else None for answer in (before, after)]
    return Knockout(
        at=before.at,
        tokens=before.tokens,
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

    >>> divergence(torch.zeros(2), torch.tensor([0.0, 100.0]))
    tensor(49.3069, dtype=torch.float64)
    """
    before, after = before.double().log_softmax(-1), after.double().log_softmax(-1)
    return (before.exp() * (before - after)).sum(-1).clamp(min=0.0)


def _counting(total: int, progress: Callable[[int, int], None]) -> Callable[[], None]:
    """Report progress per call; a model may attend more often than it has layers."""
    calls = itertools.count(1)
    return lambda: progress(min(next(calls), total), total)


def _following(question: Question, answer: Answer) -> list[int]:
    """The token that comes next in the text, if there is one."""
    if question.ids is None or answer.kind != "tokens" or answer.at is None:
        return []
    return question.ids[0, answer.at + 1 : answer.at + 2].tolist()


def _names(model: Any, answer: Answer, tokenizer: Any) -> Callable[[int], str | None]:
    """The names of the predicted entries: tokens, or the classes of a classifier."""
    if answer.kind in ("classes", "labels"):
        called = getattr(model.config, "id2label", None) or {}
        return lambda number: called.get(number)
    return lambda token: None if tokenizer is None else tokenizer.decode([token])


def _candidate(token: int, before: Tensor, after: Tensor, names: Callable[[int], str | None]) -> Candidate:
    was, now = (float(side.softmax(-1)[token]) for side in (before, after))
    return Candidate(token, names(token), was, now, float(after[token] - before[token]))
