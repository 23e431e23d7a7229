"""`importance`: cut every head, or every key, and measure the effect of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.atlas.anatomy import Anatomy
from regard.atlas.cutting import Cutter, LayerCut, cutting
from regard.atlas.edges import positions_of
from regard.atlas.effects import Effect, Importance
from regard.atlas.knockout import divergence
from regard.atlas.measures import head_measures, key_measures
from regard.atlas.prefix import Prefix
from regard.atlas.reading import Reading, Tokens, ids_of, place_of, read
from regard.errors import MapError
from regard.masks import Padding
from regard.models.watch import watch

__all__ = ["importance"]

# Tokens per batch: many variants of a short text, or one variant of a long one.
AT_ONCE = 8192


@dataclass(frozen=True)
class _Variant:
    """One cut: a head of a layer, or a key in all layers."""

    layer: int | None
    index: int


def importance(
    model: Any,
    tokens: Tokens,
    over: str = "heads",
    *,
    only: Sequence[tuple[int, int]] | Sequence[int] | None = None,
    at: int = -1,
    loss: bool = True,
    tokenizer: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Importance:
    """Cut each head (or each key, in all layers) separately, and compare the effects with measures from
    attention weights.

    The effect of a cut is that of `knockout`: KL of the prediction at `at`, and the change of the loss over
    the whole text (left out with `loss=False`). The result also has measures that are often taken for
    importance; `rank_correlation` says how well they predict the effect. `only` selects heads as (layer,
    head), or keys. By default all heads are cut, or all keys up to `at`, since later ones have no effect
    there.

    Variants run as a batch, and those of one layer start at that layer with the hidden states of the uncut
    run below it.

    >>> from regard.models import bundled
    >>> model, tokenizer = bundled()
    >>> text = "The heron was called Osgood. The badger said to the heron, whose name was Os"
    >>> found = importance(model, text, tokenizer=tokenizer)
    >>> len(found.effects), found.strongest(1)[0].name
    (54, 'layer 4 head 1')
    """
    if over not in ("heads", "keys"):
        raise MapError(f"over is {over!r}; wanted 'heads' or 'keys'.")
    ids = ids_of(model, tokens, tokenizer)
    place = place_of(at, ids.shape[1])
    anatomy = Anatomy.of_text(model, ids)
    chosen = _heads(only, anatomy) if over == "heads" else _keys(only, ids.shape[1])
    with cutting(model, anatomy) as cutter:
        sweep = _Sweep(model, ids, place, loss, cutter, late_starts=over == "heads")
        if only is None and over == "keys" and cutter.causal:
            chosen = chosen[: place + 1]
        effects = list(sweep.effects(chosen, progress))
    measured = _measured(model, ids, over, place)
    return Importance(
        over=over,
        tokens=ids.shape[1],
        at=place,
        loss_before=sweep.loss,
        effects=tuple(
            Effect(
                layer=variant.layer,
                head=variant.index if over == "heads" else None,
                key=variant.index if over == "keys" else None,
                text=_text(tokenizer, ids, variant) if over == "keys" else None,
                measures={name: values[_key(variant)] for name, values in measured.items()},
                kl=kl,
                loss_change=change,
            )
            for variant, (kl, change) in zip(chosen, effects, strict=True)
        ),
    )


class _Sweep:
    """Runs variants of one text, and compares each with the uncut run."""

    def __init__(
        self,
        model: Any,
        ids: Int[Tensor, "1 n"],
        at: int,
        loss: bool,
        cutter: Cutter,
        *,
        late_starts: bool,
    ) -> None:
        self.model, self.ids, self.at, self.with_loss, self.cutter = model, ids, at, loss, cutter
        self.prefix = Prefix(model, cutter.anatomy)
        cutter.begin({})
        with self.prefix.kept() if late_starts else nullcontext():
            self.before = read(model, ids, [at], loss=loss)
        causal = cutter.causal and self.before.losses is not None
        self.loss = self._mean_loss(self.before)[0] if causal else None
        if late_starts:
            self._try_prefix()

    def effects(
        self, variants: list[_Variant], progress: Callable[[int, int], None] | None
    ) -> Iterator[tuple[float, float | None]]:
        """KL and change of the loss for each variant, in order."""
        size, done = max(1, AT_ONCE // self.ids.shape[1]), 0
        for layer, group in groupby(variants, key=lambda variant: variant.layer):
            for batch in torch.tensor([variant.index for variant in group]).split(size):
                yield from self._batch(layer, batch)
                done += len(batch)
                if progress is not None:
                    progress(done, len(variants))

    def _batch(self, layer: int | None, indices: Int[Tensor, "batch"]) -> list[tuple[float, float | None]]:
        self.cutter.begin(self._cuts(layer, indices))
        with self.prefix.before(-1 if layer is None else layer, len(indices)):
            after = read(self.model, self.ids.expand(len(indices), -1), [self.at], loss=self.with_loss)
        kl = divergence(self.before.logits[:, 0], after.logits[:, 0]).tolist()
        if self.loss is None:
            return [(value, None) for value in kl]
        changes = [loss - self.loss for loss in self._mean_loss(after)]
        return list(zip(kl, changes, strict=True))

    def _cuts(self, layer: int | None, indices: Int[Tensor, "batch"]) -> dict[tuple[str, int], LayerCut]:
        anatomy = self.cutter.anatomy
        if layer is not None:
            dead = torch.nn.functional.one_hot(indices, anatomy.heads[layer]).bool()
            return {(anatomy.main, layer): LayerCut(dead=dead)}
        seen = ~torch.nn.functional.one_hot(indices, self.ids.shape[1]).bool()
        cut = LayerCut(mask=Padding(seen.to(self.ids.device)))
        return {(anatomy.main, number): cut for number in anatomy.heads}

    def _try_prefix(self) -> None:
        """Run once from the last layer on; the result must equal that of a whole run."""
        self.cutter.begin({})
        with self.prefix.before(max(self.cutter.anatomy.heads), 1):
            again = read(self.model, self.ids, [self.at], loss=False).logits
        if not torch.allclose(again, self.before.logits, rtol=1e-3, atol=1e-3):
            self.prefix.forget()

    def _mean_loss(self, reading: Reading) -> list[float]:
        return [] if reading.losses is None else reading.losses.double().mean(1).tolist()


def _measured(model: Any, ids: Int[Tensor, "1 n"], over: str, at: int) -> dict[str, Any]:
    with torch.no_grad(), watch(model) as recording:
        model(input_ids=ids)
    return head_measures(recording, model) if over == "heads" else key_measures(recording, model, at)


def _heads(only: Sequence[Any] | None, anatomy: Anatomy) -> list[_Variant]:
    if only is None:
        return [_Variant(layer, head) for layer, count in anatomy.heads.items() for head in range(count)]
    for pair in only:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise MapError(f"only holds {pair!r}; wanted heads as pairs (layer, head), as in only=[(6, 3)].")
        anatomy.check(*pair)
    return [_Variant(layer, head) for layer, head in _some(sorted(set(only)))]


def _keys(only: Sequence[Any] | None, n: int) -> list[_Variant]:
    places = range(n) if only is None else positions_of("keys", only, n) or ()
    return [_Variant(None, key) for key in _some(places)]


def _some(chosen: Sequence[Any]) -> Sequence[Any]:
    if not chosen:
        raise MapError("only is empty; name what to cut, or leave it out to cut everything in turn.")
    return chosen


def _key(variant: _Variant) -> Any:
    return variant.index if variant.layer is None else (variant.layer, variant.index)


def _text(tokenizer: Any, ids: Int[Tensor, "1 n"], variant: _Variant) -> str | None:
    return None if tokenizer is None else tokenizer.decode([int(ids[0, variant.index])])
