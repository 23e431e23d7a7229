"""`Reader`: runs a model on packed documents, and returns the maps of each as if it had been read alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.atlas import importance
from regard.errors import CorpusError, RegardError
from regard.maps import AttentionMap
from regard.masks.within import within
from regard.models import context_length, watch

__all__ = ["Reader"]

# The lengths of the test texts, and the tolerance for keys, relative to the largest. In a layer that mixes
# texts the difference is as large as the keys.
PROBE = (5, 7)
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class Reader:
    """Runs a model over several texts at once; positions restart with each text.

    `packs` says whether the model keeps packed texts apart; it is tested once, with two short texts together
    and alone. A model that doesn't reads one window at a time, and `refusal` gives the reason.
    """

    def __init__(self, model: Any, context: int | None = None) -> None:
        config = model.config
        if getattr(config, "is_encoder_decoder", False):
            raise CorpusError(
                f"{type(model).__name__} has an encoder and a decoder; a corpus run reads texts with one "
                "stack. Record its texts one by one with regard.models.record."
            )
        self.model = model
        longest = context_length(model)
        if context is not None and (context < 1 or (longest is not None and context > longest)):
            raise CorpusError(f"context is {context}; wanted 1 to {longest or 'any number of'} tokens.")
        self.context = context or longest or 1 << 20
        self.known = inspect.signature(model.forward).parameters
        self.role, self.layers, self.refusal = "decoder", [], None
        self._probe()

    @property
    def packs(self) -> bool:
        """Whether several texts are read in one pass."""
        return self.refusal is None

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Every head by stack, layer and number."""
        return [(self.role, layer, head) for layer, heads in self.layers for head in range(heads)]

    def read(self, texts: list[list[int]]) -> Iterator[list[AttentionMap]]:
        """The maps of every layer for each text, in order."""
        if not self.packs and len(texts) > 1:
            for text in texts:
                yield from self.read([text])
            return
        maps = self._maps(texts)
        edges = [0]
        for text in texts:
            edges.append(edges[-1] + len(text))
        for start, stop in pairwise(edges):
            yield [_cut(seen, range(start, stop)) for seen in maps]

    def importance(self, text: list[int]) -> Tensor:
        """The increase of a text's loss when a head is cut, for every head, in nats per token."""
        found = importance(self.model, torch.tensor([text], device=self.model.device)).effects
        return torch.tensor([effect.loss_change for effect in found], dtype=torch.float64)

    def check_importance(self) -> None:
        """Raise CorpusError if the model has no next-token loss."""
        given = torch.tensor([list(range(PROBE[0]))], device=self.model.device)
        _, layer, head = self.heads[0]
        try:
            (effect,) = importance(self.model, given, only=[(layer, head)]).effects
        except RegardError as error:
            raise CorpusError(f"importance cannot be measured: {error}") from error
        if effect.loss_change is None:
            raise CorpusError(
                f"importance is how much the loss grows without a head, and {type(self.model).__name__} does "
                "not predict the next token. Leave importance out."
            )

    def _maps(self, texts: list[list[int]]) -> list[AttentionMap]:
        device = self.model.device
        ids = torch.tensor([[token for text in texts for token in text]], device=device)
        given: dict[str, Any] = {"input_ids": ids}
        given |= {n: v for n, v in (("use_cache", False), ("logits_to_keep", 1)) if n in self.known}
        if len(texts) > 1:
            places = torch.cat([torch.arange(len(text)) for text in texts])
            given["position_ids"] = places[None].to(device)
        with torch.no_grad(), watch(self.model, stats=()) as recording:
            self.model(**given)
        stacks = recording.stacks
        if len(stacks) != 1:
            raise CorpusError(
                f"{type(self.model).__name__} has {len(stacks)} stacks ({', '.join(stacks)}); a corpus run "
                "reads texts with one."
            )
        self.role = next(iter(stacks))
        layers = recording.layers if self.role == "decoder" else recording.stack(self.role)
        found = [layers[index] for index in sorted(layers)]
        self.layers = [(layer.index, layer.map.shape[1]) for layer in found]
        return [layer.map for layer in found]

    def _probe(self) -> None:
        """Read two short texts together and alone, and compare the maps."""
        size = self.model.get_input_embeddings().num_embeddings
        texts = [[(7 * i + 3 * n) % size for i in range(n)] for n in PROBE]
        alone = self._maps(texts[-1:])
        if "position_ids" not in self.known:
            self.refusal = "the model takes no position_ids"
            return
        try:
            together = self._maps(texts)
        except RegardError as error:
            self.refusal = f"the model does not read packed texts: {error}"
            return
        for index, (one, both) in enumerate(zip(alone, together, strict=True)):
            mask = within(both.mask, range(PROBE[0], sum(PROBE)), PROBE[0])
            if mask != one.mask:
                self.refusal = f"layer {index} would see {mask!r} in a packed text and {one.mask!r} alone"
                return
            if mask is not None and not mask.relative:
                self.refusal = f"the mask of layer {index}, {mask!r}, depends on the place in a packed text"
                return
            cut = _cut(both, range(PROBE[0], sum(PROBE)))
            for name in ("q", "k", "v"):
                if not _close(getattr(one.problem, name), getattr(cut.problem, name)):
                    self.refusal = f"layer {index} reads other {name} in a packed text than alone"
                    return


def _cut(seen: AttentionMap, text: range) -> AttentionMap:
    """The map of one packed text as if it had been read alone; a copy, so that the batch can be freed."""
    p = seen.problem
    if len(text) == p.k_len:
        return seen
    rows = slice(text.start, text.stop)
    scoring = p.scoring
    if isinstance(scoring.bias, Tensor):
        bias = scoring.bias
        bias = bias[..., rows, :] if bias.shape[-2] > 1 else bias
        scoring = replace(scoring, bias=bias[..., rows] if bias.shape[-1] > 1 else bias)
    mask = None if p.mask is None else within(p.mask.select(0), text, text.start)
    q, k, v = (x[:, :, rows] for x in (p.q, p.k, p.v))
    return AttentionMap(replace(p, q=q, k=k, v=v, mask=mask, scoring=scoring, offset=0), seen.lse[:, :, rows])


def _close(a: Tensor, b: Tensor) -> bool:
    a32, b32 = a.double(), b.double()
    return bool((a32 - b32).abs().max() <= TOLERANCE.get(a.dtype, 1e-1) * a32.abs().max().clamp(min=1e-30))
