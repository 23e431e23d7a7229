"""Writes a recording layer by layer, so that a crash loses at most the layer being written.

A recording is a folder. Every writing uses new file names, and the manifest that lists them is replaced
atomically at the end. Until then the old recording stays valid, and `partial.json` lists what has been
written of the new one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import operator
import secrets
import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from regard.errors import RecordingError
from regard.extension import implements
from regard.models.backlog import Backlog
from regard.models.layer import Layer
from regard.models.manifest import (
    COMPLETE,
    FIRST,
    FORMAT,
    PARTIAL,
    entry_of,
    read_manifest,
    was_cut_short,
    write_manifest,
)
from regard.models.recording import Recording
from regard.models.rounding import Rounding
from regard.models.sites import Site
from regard.models.sizes import spoken
from regard.models.storage import Draft, check_file, draft_of, layer_from
from regard.models.target import DRAFTS, check_room, check_target, free_bytes, remove_layer, remove_others
from regard.models.tokens import Token

__all__ = ["Writer", "save_recording"]

log = logging.getLogger("regard")


@implements(Recording.save)
def save_recording(
    recording: Recording,
    path: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    keys: str | None = None,
    queries: str | None = None,
) -> None:
    """Write a complete recording from memory."""
    path, layers = Path(path), recording.all_layers
    if not layers:
        raise RecordingError("there is nothing to save: no layer was recorded.")
    check_room(path, recording.nbytes)
    log.info("writing %s (%d layers) to %s", spoken(recording.nbytes), len(layers), path)
    rounding = Rounding(keys, queries)
    writer = Writer(path, recording, resume=resume, overwrite=overwrite, streaming=False, rounding=rounding)
    with writer:
        for layer in layers:
            if not writer.has(layer.site):
                writer.write(layer)


class Writer:
    """Writes the layers of a recording as they come; leaving its block completes the recording.

    Threads write some layers while the model computes the next one. If too many wait, the model waits. An
    error in a thread is raised at a later layer, or at the end of the block.
    """

    def __init__(
        self,
        path: str | Path,
        recording: Recording,
        *,
        resume: bool = False,
        overwrite: bool = False,
        streaming: bool = True,
        rounding: Rounding | None = None,
    ) -> None:
        self.path, self.recording, self.streaming = Path(path), recording, streaming
        self.resume, self.overwrite, self.rounding = resume, overwrite, rounding
        self.stem = secrets.token_hex(4)
        self.entries: dict[Site, dict[str, Any]] = {}
        self._resumed: dict[Site, dict[str, Any]] = {}
        self._taken_over = False
        self._text: str | None = None
        self._tokens: dict[str, Any] | None = None
        self._backlog = Backlog()
        self._order: dict[Site, int] = {}
        """The place of each layer among all that ran."""
        self._entering = Lock()
        """Held by the thread that changes `entries` or writes the partial manifest."""

    def __enter__(self) -> Writer:
        check_target(self.path, resume=self.resume, overwrite=self.overwrite)
        if self.resume and was_cut_short(self.path):
            self._take_over()
        elif self.path.exists():
            write_manifest(self.path / PARTIAL, self._about())
        else:
            self._found()
        if self.streaming:
            self.recording.cleared = self._restart
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.recording.cleared = None
        try:
            if kind is not None:
                self._abandon()
            else:
                with self._explained():
                    self._finish()
        except RecordingError as failure:
            error = failure
            raise
        finally:
            self._backlog.close()
            if isinstance(error, Exception) and not (self.streaming and self.entries):
                self._clean_up()

    def has(self, site: Site) -> bool:
        """Whether this layer was written before, by an interrupted writing of the same text.

        Asked for every layer, in the order in which they run.
        """
        self._order.setdefault(site, len(self._order))
        if site not in self._resumed:
            return False
        if self._text != _text_of(self.recording):
            raise RecordingError(
                f"the partial recording at {self.path} is of another text; give the same tokens to continue "
                "it, or write it anew with resume=False."
            )
        return True

    def write(self, layer: Layer) -> None:
        """Start to write a layer; wait first until there is room for it."""
        self._make_room(layer)
        stem = f"{self.stem}-{layer.role}-{layer.index:03d}"
        with self._explained():
            if self._tokens is None:
                self._tokens = self._write_tokens("0")
            if self.streaming:
                layer.own()
            draft = draft_of(layer, stem, rounding=self.rounding)
            self._backlog.add(draft, partial(self._written, draft, self._about()))

    def _make_room(self, layer: Layer) -> None:
        """Wait for layers before this one while too many are being written, or one of the same site is."""
        while self._backlog and self._backlog.delays(layer, copied=self.streaming):
            self._settle_first()

    def _written(self, draft: Draft, about: dict[str, Any]) -> None:
        """Write a layer's files, then the manifest that lists them; runs in a thread."""
        entry = draft.write(self.path, self._backlog.buffers)
        with self._entering:
            self.entries[draft.layer.site] = entry
            write_manifest(self.path / PARTIAL, about | _layers_said(self._listed()))

    def _listed(self) -> list[dict[str, Any]]:
        """The entries in the order in which the layers ran; threads may finish in another."""
        return [self.entries[site] for site in sorted(self.entries, key=self._place)]

    def _place(self, site: Site) -> int:
        # Layers of an interrupted writing that have not run again come last.
        return self._order.get(site, len(self._order))

    def _settle(self) -> None:
        """Wait for all layers that are being written."""
        while self._backlog:
            self._settle_first()

    def _settle_first(self) -> None:
        """Wait for the layer that has waited longest, and free its memory."""
        draft, written = self._backlog.first()
        layer = draft.layer
        with self._explained():
            written.result()
        same = len(layer.segments) == len(draft.segments) and all(
            map(operator.is_, layer.segments, draft.segments)
        )
        if self.streaming and same:
            # From now on the layer's tensors are mapped from the file.
            layer.drop(layer_from(self.entries[layer.site], self.path))

    def _abandon(self) -> None:
        """Wait for what is being written, whatever becomes of it: another error is under way."""
        while self._backlog:
            with suppress(RecordingError):
                self._settle_first()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the disk into RecordingError, with sizes and a remedy."""
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error
        except Exception as error:
            if "os error" not in str(error):
                raise
            raise self._failed(error) from error  # safetensors wraps the error of the system

    def check_room(self, size: int) -> None:
        """Raise RecordingError, with the size, if the recording won't fit on the disk."""
        check_room(self.path, size + self._backlog.nbytes)
        if not (self.entries or self._backlog):
            log.info("writing about %s to %s", spoken(size), self.path)

    def _take_over(self) -> None:
        """Continue a partial recording: keep its layers if they belong to this model and are intact."""
        about = read_manifest(self.path / PARTIAL)
        if about["model"]["fingerprint"] != self.recording.model.fingerprint:
            raise RecordingError(
                f"the partial recording at {self.path} is of {about['model']['name']!r} with another config "
                "or other weights; continue with that model, or write it anew with resume=False."
            )
        self.stem, self._text, self._taken_over = about["stem"], about["text_digest"], True
        with suppress(RecordingError):
            if about["tokens"] is not None:
                check_file(about["tokens"], self.path, content=True)
                self._tokens = about["tokens"]
        for entry in about["layers"]:
            with suppress(RecordingError):
                for part in entry["segments"]:
                    check_file(part, self.path, content=True)
                self._resumed[Site(**entry["site"])] = entry
        self.entries = dict(self._resumed)

    def _found(self) -> None:
        """Create the folder and its first manifest atomically."""
        draft = self.path.with_name(f".{self.path.name}.{self.stem}.tmp")
        try:
            draft.mkdir(parents=True)
            write_manifest(draft / PARTIAL, self._about())
            draft.rename(self.path)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise self._failed(error) from error

    def _restart(self) -> None:
        """Start over for a new text: remove what was written of the previous one, keep resumed layers."""
        self._settle()
        fresh = {site: entry for site, entry in self.entries.items() if site not in self._resumed}
        if fresh:
            self._resumed, self._tokens = {}, None
        for entry in fresh.values():
            remove_layer(self.path, entry)
        self.entries = dict(self._resumed)
        for entry in self._resumed.values():
            self.recording.put(layer_from(entry, self.path))

    def _finish(self) -> None:
        self._settle()
        self.recording.arrange(self._place)
        for layer in self.recording.all_layers:
            known = self.entries.get(layer.site)
            if self.streaming and known is not None and layer.loaded and len(layer.segments) > 1:
                stem = f"{self.stem}-{layer.role}-{layer.index:03d}"
                self.entries[layer.site] = draft_of(layer, stem, known).write(
                    self.path, self._backlog.buffers
                )
        # A copy of a recording that was opened as partial is partial too.
        complete = self.streaming or self.recording.complete
        # A new name, because the partial manifest still lists the old file.
        about = self._about() | {"complete": complete, "tokens": self._write_tokens("1")}
        write_manifest(self.path / COMPLETE, about)
        remove_others(self.path, about)
        self.recording.path = self.path

    def _about(self) -> dict[str, Any]:
        model = self.recording.model
        text = _text_of(self.recording)
        with self._entering:
            layers = self._listed()
        return {
            "complete": False,
            **_layers_said(layers),
            "stem": self.stem,
            "model": {"name": model.name, "kind": model.kind, "fingerprint": model.fingerprint},
            "tokenizer": self.recording.tokenizer,
            "text_digest": self._text if text is None else text,
            "tokens": self._tokens,
        }

    def _write_tokens(self, version: str) -> dict[str, Any]:
        recording = self.recording
        ids: dict[str, Any] = {role: rows.tolist() for role, rows in recording.token_ids.items()}
        passages = {role: rows for role in ("encoder", "decoder") if (rows := recording.passages_of(role))}
        if passages:
            ids["passages"] = passages
        if recording.pictures:
            ids["pictures"] = [
                {**picture._asdict(), "png": b64encode(picture.png).decode()}
                for picture in recording.pictures
            ]
        with suppress(RecordingError):
            # Without a tokenizer there are only ids.
            ids |= {"text": recording.text, "tokens": _bare(recording.batch_tokens)}
            if len(recording.texts or ()) > 1:
                ids["texts"] = recording.texts
            if {"encoder", "decoder"} <= ids.keys():
                ids["encoder_tokens"] = _bare(recording.tokens_of("encoder"))
        file = self.path / f"{self.stem}-tokens-{version}.json"
        draft = file.with_name(f"{file.name}.tmp")
        draft.write_text(json.dumps(ids), encoding="utf-8")
        draft.replace(file)
        return entry_of(file)

    def _failed(self, error: BaseException) -> RecordingError:
        if isinstance(error, OSError) and error.errno not in (None, ENOSPC, EDQUOT, EFBIG):
            return RecordingError(
                f"{self.path} cannot be written: {error.strerror}. Save the recording somewhere else."
            )
        free = free_bytes(self.path)
        return RecordingError(
            f"writing the recording to {self.path} failed: {error}. {spoken(self.recording.nbytes)} are to "
            f"be written and {spoken(free)} are free. Make room, or save somewhere else."
        )

    def _clean_up(self) -> None:
        """Remove the unfinished files of this writing; a partial recording that was resumed stays."""
        drafts = [file for pattern in DRAFTS for file in self.path.glob(pattern)]
        own = [] if self._taken_over else [*self.path.glob(f"{self.stem}-*"), self.path / PARTIAL]
        for file in [*drafts, *own]:
            with suppress(OSError):
                file.unlink()
        with suppress(OSError):
            self.path.rmdir()


def _layers_said(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """What a manifest says of layers, and the format that a reader has to know for them."""
    return {"format": FORMAT if any("rounded" in entry for entry in layers) else FIRST, "layers": layers}


def _bare(rows: list[list[Token]]) -> list[list[tuple[str, int, int]]]:
    """Tokens without their ids, which are stored separately."""
    return [[token[1:] for token in row] for row in rows]


def _text_of(recording: Recording) -> str | None:
    """A hash of the tokens being recorded."""
    if not recording.token_ids:
        return None
    found = hashlib.sha256()
    for role, ids in sorted(recording.token_ids.items()):
        found.update(f"{role} {tuple(ids.shape)}".encode())
        found.update(ids.long().contiguous().numpy().tobytes())
    return found.hexdigest()
