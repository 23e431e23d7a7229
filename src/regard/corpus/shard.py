"""Reads the documents of one shard, and writes their sums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.corpus.adding import add
from regard.corpus.plan import Plan
from regard.corpus.reading import Reader
from regard.corpus.state import MEASURES, State
from regard.corpus.store import Store
from regard.corpus.survey import Survey, survey
from regard.corpus.texts import Texts, Unreadable
from regard.corpus.windows import Windows, batches, windows_of
from regard.errors import CorpusError, RegardError

__all__ = ["DEATHS", "ShardWorker", "is_done", "read_shard", "shard_name"]

# After this many deaths of its reader, a batch is read document by document; then, after as many, a document
# is given up. One death is not enough, because workers die for other reasons too.
DEATHS = 6


@dataclass
class ShardWorker:
    """Reads shards of one plan with a loaded model, one after another."""

    reader: Reader
    tokenizer: Any
    texts: Texts
    plan: Plan
    store: Store
    _deaths: dict[str, int] = field(default_factory=dict)

    def work(self, shard: int, tell: Callable[[int], None] | None = None) -> State:
        """Read a shard and write its state; `tell(documents)` after every batch."""
        state = State.empty(len(self.plan.heads))
        self._deaths = self._died(shard)
        threads = torch.get_num_threads()
        torch.set_num_threads(self.plan.settings.threads)
        try:
            for batch in batches(self._documents(shard, state), self.plan.settings.batch):
                self._read(shard, batch, state)
                if tell is not None:
                    tell(state.documents + len(state.failed))
        except KeyboardInterrupt:
            # The process survived, so the next attempt counts from zero.
            self.store.remove(_mark(shard))
            raise
        finally:
            torch.set_num_threads(threads)
        state.failed.sort(key=lambda entry: entry["document"])
        self._write(shard, state)
        return state

    def _documents(self, shard: int, state: State) -> Iterator[Windows]:
        """The tokens of the readable documents of a shard; notes the unreadable ones in the state."""
        wanted = self.plan.range_of(shard)
        size = self.plan.settings.context or 1
        for found in self.texts.documents(wanted.start, wanted.stop):
            if isinstance(found, Unreadable):
                _note(state, found.number, found.name, found.reason)
                continue
            try:
                yield windows_of(found, self.tokenizer, size)
            except RegardError as error:
                _note(state, found.number, found.name, str(error))

    def _read(self, shard: int, batch: list[Windows], state: State) -> None:
        """Read a batch; document by document if it takes too much memory or has killed its readers."""
        deaths = self._begin(shard, batch)
        if deaths < DEATHS:
            try:
                found = self._surveys(batch)
            except Exception as error:
                if not _no_memory(error):
                    raise
                reason = f"out of memory: {str(error).splitlines()[0] if str(error) else 'no room'}"
            else:
                for document, windows in zip(batch, found, strict=True):
                    add(state, document, windows)
                return
        else:
            reason = f"the process that read it died {deaths} times"
        _free()
        if len(batch) > 1:
            for document in batch:
                self._read(shard, [document], state)
        else:
            document = batch[0].document
            _note(state, document.number, document.name, f"{reason} ({len(batch[0].ids)} tokens)")

    def _begin(self, shard: int, batch: list[Windows]) -> int:
        """Write to disk which batch is being read; returns how often a reader has died on this batch."""
        now = _name(batch)
        self.store.write_json(_mark(shard), {"reading": now, "deaths": self._deaths})
        return self._deaths.get(now, 0)

    def _died(self, shard: int) -> dict[str, int]:
        """The batches that earlier readers of a shard died on, with the number of deaths."""
        mark = self.store.read_json(_mark(shard))
        if mark is None:
            return {}
        deaths = mark["deaths"]
        return deaths | {mark["reading"]: deaths.get(mark["reading"], 0) + 1}

    def _surveys(self, batch: list[Windows]) -> list[list[Survey]]:
        texts = [(document, start) for document in batch for start in document.starts]
        maps = self.reader.read([document.window(start) for document, start in texts])
        found: dict[int, list[Survey]] = {}
        for (document, start), layers in zip(texts, maps, strict=True):
            seen = survey(layers, self.reader.role, document.words(start))
            if start == 0 and self._cuts(document):
                seen.measures[MEASURES.index("importance")] = self.reader.importance(document.window(0))
            found.setdefault(document.document.number, []).append(seen)
        return [found[document.document.number] for document in batch]

    def _cuts(self, document: Windows) -> bool:
        """Whether heads are cut in a document, which must have more than one token."""
        every = self.plan.settings.importance
        return every > 0 and document.document.number % every == 0 and len(document.ids) > 1

    def _write(self, shard: int, state: State) -> None:
        sums, about = state.to_bytes()
        name = shard_name(shard)
        self.store.write(f"{name}.safetensors", sums)
        # Written last: the shard is done once this file exists.
        entry = {"bytes": len(sums), "sha256": hashlib.sha256(sums).hexdigest()}
        self.store.write_json(f"{name}.json", {"shard": shard, "sums": entry, **about})
        self.store.remove(_mark(shard))


def read_shard(store: Store, shard: int) -> State:
    """The state of a finished shard."""
    name = shard_name(shard)
    about = store.read_json(f"{name}.json")
    sums = store.read(f"{name}.safetensors")
    if about is None or sums is None:
        raise CorpusError(
            f"shard {shard} of {store.where} was not read yet; go on with --resume, or run the part of the "
            "array job that it belongs to."
        )
    if hashlib.sha256(sums).hexdigest() != about["sums"]["sha256"]:
        raise CorpusError(
            f"{store.where}/{name}.safetensors is damaged: its checksum is not that of {name}.json. Delete "
            "both and go on with --resume."
        )
    return State.from_bytes(sums, about)


def shard_name(shard: int) -> str:
    """The path of a shard's state, without suffix."""
    return f"shards/{shard:06d}"


def is_done(names: set[str], shard: int) -> bool:
    """Whether a shard is done, given the names of the files in the folder of shards."""
    return f"{shard:06d}.json" in names


def _mark(shard: int) -> str:
    return f"reading/{shard:06d}.json"


def _name(batch: list[Windows]) -> str:
    return f"{batch[0].document.number}+{len(batch)}"


def _note(state: State, number: int, name: str, reason: str) -> None:
    state.failed.append({"document": number, "name": name, "reason": reason})


def _no_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in said or "out of memory" in said)


def _free() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
