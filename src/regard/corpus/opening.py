"""Records the text of an atlas entry again: its window, with the cell that the entry names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.corpus.source import ModelSource, tokenizer_digest
from regard.corpus.texts import Texts, Unreadable
from regard.corpus.windows import windows_of
from regard.errors import CorpusError
from regard.models import record
from regard.models.identity import ModelIdentity

if TYPE_CHECKING:
    from regard.corpus.atlas import CorpusAtlas
    from regard.models import Recording

__all__ = ["Opened", "record_entry"]


@dataclass(frozen=True)
class Opened:
    """A recording of one window, and the entry's cell in it."""

    recording: Recording
    name: str
    query: int
    key: int
    weight: float


def record_entry(
    atlas: CorpusAtlas, model: Any, texts: str | Path, layer: int, head: int, rank: int = 0
) -> Opened:
    """Record the text of rank `rank` in a head's list, with the model and the texts of the run.

    `model` is a `ModelSource` or a pair of a model and its tokenizer.
    """
    top = atlas.of(layer, head).top
    if not 0 <= rank < len(top):
        raise CorpusError(f"rank is {rank}; layer {layer}, head {head} has {len(top)} texts (from 0).")
    entry, about = top[rank], atlas.plan.about
    loaded, tokenizer = model.load() if isinstance(model, ModelSource) else model
    identity = ModelIdentity.of(loaded)
    if (
        identity.fingerprint != about["model"]["fingerprint"]
        or tokenizer_digest(tokenizer) != about["tokenizer"]
    ):
        raise CorpusError(
            f"{identity.kind} or its tokenizer is not what read the corpus ({about['model']['kind']}). Give "
            "the model of the run, in the same dtype."
        )
    found = Texts(texts, atlas.plan.settings.field)
    if found.marks != about["texts"]:
        raise CorpusError(f"{texts} holds other texts than the run read. Give the texts of the run.")
    document = found.document(entry["document"])
    if isinstance(document, Unreadable):
        raise CorpusError(f"{document.name} cannot be read any more: {document.reason}.")
    windows = windows_of(document, tokenizer, atlas.plan.settings.context or 1)
    ids = windows.window(entry["start"])
    with torch.no_grad():
        recording = record((loaded, tokenizer), ids)
    cell = entry["cells"][0]
    query, key = cell["query"], cell["key"]
    seen = float(recording.layers[layer].map[0, head, query, key])
    return Opened(recording, entry["name"], query, key, seen)
