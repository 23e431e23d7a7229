"""The functions that agents can call: recordings, cells, atlases, cuts, checks and costs, as plain data."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.cards import HeadCard
from regard.errors import RegardError
from regard.models import LoadedModel, Recording, load_model
from regard.models import record as record_text

__all__ = ["Desk"]

# The most recordings to keep, characters of a text, and rows of an answer.
KEPT, CHARACTERS, ROWS = 8, 200_000, 50


class Desk:
    """One model, the recordings given at the start, and those made since. No other files are read.

    Nothing is written, unless `write` names a folder where recordings may be saved.
    """

    def __init__(
        self, recordings: Sequence[Path] = (), model: str = "bundled", write: Path | None = None
    ) -> None:
        self.named = {path.name: path for path in map(Path, recordings)}
        for path in self.named.values():
            Recording.open(path)
        self.model, self.write = model, write
        self._loaded: LoadedModel | None = None
        self._made: OrderedDict[str, Recording] = OrderedDict()
        self._count = 0
        # Watching a model replaces its attention, so read one text at a time.
        self._lock = threading.Lock()

    def recordings(self) -> dict[str, Any]:
        """Names of all recordings, with model, tokens and layers."""
        found = [*self.named, *self._made]
        return {"recordings": [{"name": name, **_about(self._open(name))} for name in found]}

    def record(self, text: str) -> dict[str, Any]:
        """Let the model read a text and keep what it attended to, in memory."""
        self._check_text(text)
        with self._lock:
            made = record_text(self._model(), text)
            self._count += 1
            name = f"text-{self._count}"
            self._made[name] = made
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
        return {"name": name, **_about(made)}

    def tokens(self, recording: str, start: int = 0) -> dict[str, Any]:
        """Tokens by position, a part of them."""
        texts = [token.text for token in self._open(recording).tokens]
        if not 0 <= start < len(texts):
            raise RegardError(f"start is {start}; the recording has {len(texts)} tokens.")
        shown = texts[start : start + 10 * ROWS]
        return {"start": start, "total": len(texts), "tokens": shown}

    def atlas(self, recording: str, kind: str | None = None) -> dict[str, Any]:
        """Kinds of heads with their evidence, best first."""
        made = self._open(recording).atlas()
        known = list(made.heads[0].findings)
        if kind is not None and kind not in known:
            raise RegardError(f"there is no kind {kind!r}; kinds are: {', '.join(known)}.")
        kinds = made.kinds if kind is None else {kind: made.kinds.get(kind, ())}
        found = {name: [_card(card, name) for card in cards[:ROWS]] for name, cards in kinds.items()}
        return {"model": made.model, "tokens": made.tokens, "heads": len(made.heads), "kinds": found}

    def row(self, recording: str, layer: int, head: int, query: int, top: int = 10) -> dict[str, Any]:
        """The heaviest keys of one query."""
        opened = self._open(recording)
        seen = self._map(opened, layer, head)
        if not 1 <= top <= ROWS:
            raise RegardError(f"top is {top}; wanted 1 to {ROWS}.")
        weights = seen[0, head, query]
        heaviest = weights.topk(min(top, len(weights)))
        texts = [token.text for token in opened.tokens]
        pairs = zip(heaviest.indices.tolist(), heaviest.values.tolist(), strict=True)
        return {
            "query": query % seen.shape[2],
            "token": texts[query],
            "keys": [{"key": key, "token": texts[key], "weight": weight} for key, weight in pairs],
        }

    def cell(self, recording: str, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
        """One weight, exact, with its score and both tokens."""
        opened = self._open(recording)
        seen = self._map(opened, layer, head)
        score = float(seen.scores((0, head, query, key)))
        texts = [token.text for token in opened.tokens]
        return {
            "weight": float(seen[0, head, query, key]),
            # A masked cell has score -inf, which JSON lacks.
            "score": score if score > float("-inf") else None,
            "query": texts[query],
            "key": texts[key],
        }

    def knock_out(self, text: str, heads: list[str], at: int = -1, top: int = 5) -> dict[str, Any]:
        """What changes in the next token, and in the loss, without some heads."""
        from regard.atlas import knockout

        self._check_text(text)
        if not heads or not 1 <= top <= ROWS:
            raise RegardError(
                f"heads is {heads} and top {top}; wanted heads such as 6.3, and 1 to {ROWS} tokens."
            )
        cut = [_head(name) for name in heads]
        with self._lock:
            model, tokenizer = self._model()
            return knockout(model, text, heads=cut, tokenizer=tokenizer, at=at, top=top).to_dict()

    def check(self, text: str) -> dict[str, Any]:
        """Which printed numbers of a worked example follow from the others, and why the rest do not."""
        from regard.checking import check

        self._check_text(text)
        return check(text).to_dict()

    def cost(self, model: str, context: str = "8k", gpu: str | None = None) -> dict[str, Any]:
        """Parameters, FLOPs, bytes and cache of a known model at a context length."""
        from regard.cost import context_of, estimate, preset
        from regard.cost import gpu as gpu_named

        machine = None if gpu is None else gpu_named(gpu)
        return estimate(preset(model), [context_of(context)], processor=machine).to_dict()

    def save(self, recording: str, name: str) -> dict[str, Any]:
        """Write a recording made here into the folder that was named at the start; nothing is replaced."""
        if self.write is None:
            raise RegardError("this server is read-only. Start it with --write FOLDER to save recordings.")
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
            raise RegardError(f"{name!r} is no name for a recording; use letters, digits, dots and dashes.")
        path = self.write / name
        self._open(recording).save(path)
        return {"saved": name}

    def _open(self, name: str) -> Recording:
        if name in self._made:
            return self._made[name]
        if name in self.named:
            return Recording.open(self.named[name])
        known = ", ".join([*self.named, *self._made]) or "none yet; make one with record"
        raise RegardError(f"there is no recording {name!r}; there are: {known}.")

    def _map(self, recording: Recording, layer: int, head: int) -> Any:
        found = recording.layers[layer]
        found.check_head(head)
        return found.map

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            self._loaded = load_model(self.model)
        return self._loaded

    def _check_text(self, text: str) -> None:
        if not text.strip():
            raise RegardError("the text is empty; give at least one word.")
        if len(text) > CHARACTERS:
            raise RegardError(f"the text has {len(text):,} characters; at most {CHARACTERS:,} are read.")


def _about(recording: Recording) -> dict[str, Any]:
    ids = next(iter(recording.token_ids.values()), None)
    return {
        "model": recording.model.label,
        "tokens": 0 if ids is None else ids.shape[1],
        "layers": list(recording.layers),
        "heads": next(iter(recording.maps.values())).shape[1],
    }


def _card(card: HeadCard, kind: str) -> dict[str, Any]:
    return {
        "head": f"{card.layer}.{card.head}",
        "score": card.score(kind),
        "evidence": card.evidence[kind],
    }


def _head(name: str) -> tuple[int, int]:
    layer, _, head = name.partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise RegardError(f"a head is {name!r}; wanted a layer and a head, such as 6.3.")
    return int(layer), int(head)
