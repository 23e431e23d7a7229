"""The state of one server: recordings, models, jobs and caches."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from fastapi import HTTPException

from regard.errors import RegardError
from regard.models import Layer, Recording
from regard.viewer.comparing import Aligned, align
from regard.viewer.heads import Head
from regard.viewer.jobs import Job, Jobs
from regard.viewer.library import Entry, Library
from regard.viewer.making import book_recording, generate, last_only, likeliest, record_text
from regard.viewer.names import axis_names
from regard.viewer.pruning import prune, touch
from regard.viewer.pyramid import Pyramid
from regard.viewer.settings import Settings
from regard.viewer.shapes import StackShape
from regard.viewer.shelf import HALF, PATIENCE, Shelf
from regard.viewer.storing import Upload, keep
from regard.viewer.tiles import TileCache, direct

__all__ = ["BOOK", "Session", "remove_abandoned"]

BOOK = "Alice's Adventures in Wonderland"

# Up to this length the model predicts the next token, which takes about a second.
LONGEST = 8192
# The most concurrent uploads; one more drops the oldest.
UPLOADS = 4
# The prefix of temporary folders, before the number of the process that they belong to.
SCRATCH = "regard-viewer-"


class Session:
    """Recordings, models, jobs and tiles of one server; `close` ends its jobs and removes what it made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Don't show kept recordings if other machines can reach the server.
        self.library = Library(settings.recordings, settings.cache / "kept" if settings.local else None)
        self.uploads: dict[str, Upload] = {}
        self.shelf = Shelf(settings.model)
        self.jobs = Jobs(settings.without_folders)
        self.tiles = TileCache(settings.tile_bytes)
        self.atlases: dict[str, dict[str, Any]] = {}
        self._ready: set[tuple[str, str, int, int]] = set()
        self._next: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._checked: set[str] = set()
        self._aligned: dict[tuple[str, str, str], tuple[Aligned, Aligned]] = {}
        self._words: dict[tuple[str, str], Any] = {}
        self._scratch: Path | None = None
        self._lock = threading.Lock()

    @property
    def scratch(self) -> Path:
        """A temporary folder for files made while the server runs; `close` removes it."""
        with self._lock:
            if self._scratch is None:
                remove_abandoned()
                self._scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))
            return self._scratch

    def close(self) -> None:
        self.jobs.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def shape(self, entry: Entry, role: str) -> StackShape:
        """The sizes of a stack; 404 if the recording has no such stack."""
        shapes = entry.shapes
        if role not in shapes:
            raise HTTPException(404, f"the recording has no {role!r}; its stacks are: {', '.join(shapes)}.")
        return shapes[role]

    def pyramid(self, entry: Entry, role: str, layer: int, head: int) -> Pyramid:
        """The stored overviews of a head; if they don't exist yet, 503 with the job that makes them."""
        shape = self.shape(entry, role)
        if layer not in shape.layers or not 0 <= head < shape.heads:
            raise HTTPException(404, f"the {role} has no layer {layer} with a head {head}.")
        cache = self.settings.cache if entry.path is not None else self.scratch
        stored = entry.stored(role, layer, cache).head(head, shape.queries, shape.keys)
        key = entry.id, role, layer, head
        if key in self._ready:
            return stored
        if stored.ready:
            self._ready.add(key)
            touch(stored)
            return stored
        job = self.start_pyramid(entry, [(role, layer, head)], bound=True)
        sentence = "The overview of this head is being made; it is there when the job has ended."
        raise HTTPException(503, {"error": sentence, "job": job.id}, {"Retry-After": "2"})

    def forget_pyramid(self, entry: Entry, role: str, layer: int, head: int) -> None:
        """Drop the cached pyramid, because a stored overview could not be read."""
        self._ready.discard((entry.id, role, layer, head))

    def start_pyramid(self, entry: Entry, heads: list[tuple[str, int, int]], *, bound: bool) -> Job:
        """Make the stored overviews of some heads, except those that exist."""

        def work(job: Job) -> dict[str, Any]:
            total = done = 0
            todo: list[tuple[Head, Pyramid]] = []
            for role, layer, head in heads:
                shape = self.shape(entry, role)
                cache = self.settings.cache if entry.path is not None else self.scratch
                stored = entry.stored(role, layer, cache).head(head, shape.queries, shape.keys)
                if direct(99, shape.queries, shape.keys) or stored.ready:
                    continue
                todo.append((entry.head(role, layer, head), stored))
                total += stored.steps
            for head, stored in todo:
                before = done
                stored.make(head, lambda steps, _, before=before: job.progress(before + steps, total))
                done += stored.steps
                prune(self.settings.cache, self.settings.cache_bytes, [stored])
            return {"recording": entry.id, "heads": len(todo)}

        where = f", layer {heads[0][1]}, head {heads[0][2]}" if len(heads) == 1 else ""
        key = ("pyramid", entry.id, *heads)
        return self.jobs.start(
            "pyramid", work, key=key, bound=bound, title=f"{entry.name}{where}", light=True
        )

    def kept(self, entry: Entry, name: str) -> Entry:
        """Store the recording under a name, so that it is available after a restart of the server."""
        folder = self._own_machine()
        path = keep(self.folder(entry), folder, name)
        self.library.drop(entry)
        return next(one for one in self.library.entries()[0] if one.path == path)

    def forget(self, entry: Entry) -> None:
        """Remove a recording that was kept."""
        if not self.library.keeps(entry) or entry.path is None:
            raise HTTPException(409, f"{entry.name} is not kept here, so it cannot be removed from here.")
        shutil.rmtree(entry.path)

    def folder(self, entry: Entry) -> Path:
        """The folder of a recording; one in memory is written first."""
        if entry.path is not None:
            entry.check()
            return entry.path
        path = self.scratch / f"{entry.id}.regard"
        if not path.exists():
            entry.recording.save(path)
        return path

    def start_upload(self) -> str:
        """Begin an upload; returns its id."""
        self._own_machine()
        if len(self.uploads) >= UPLOADS:
            self.uploads.pop(next(iter(self.uploads))).drop()
        name = secrets.token_hex(8)
        self.uploads[name] = Upload(self.scratch / f"upload-{name}.regard", self.settings.upload_bytes)
        return name

    def finish_upload(self, name: str, title: str) -> Entry:
        """Show an uploaded recording."""
        upload = self.uploads.pop(name)
        try:
            entry = Entry(title, upload.finish())
        except RegardError:
            upload.drop()
            raise
        known = next((one for one in self.library.entries()[0] if one.id == entry.id), None)
        if known is not None:  # it is already open under this name
            upload.drop()
            return known
        return self.library.add(upload.folder, title)

    def _own_machine(self) -> Path:
        if self.library.kept is None:
            raise HTTPException(
                403, "recordings are kept and opened only where the server runs for one machine."
            )
        return self.library.kept

    def start_record(self, text: str, model: str, too_long: str, *, name: str = "", bound: bool) -> Job:
        """Record a text with one of the models."""

        def work(job: Job) -> dict[str, Any]:
            with self.shelf.use(model, patience=600) as loaded:
                store = self.scratch / f"{job.id}.regard"
                record_text(loaded, text, store, too_long=too_long, progress=job.progress)
            return {"recording": self.library.add(store, title).id}

        title = name.strip() or _title(text)
        return self.jobs.start("record", work, bound=bound, title=title)

    def start_book(self, *, bound: bool) -> Job:
        """Let the bundled model read the bundled book, unless it is recorded already."""

        def work(job: Job) -> dict[str, Any]:
            with self.shelf.use(HALF, patience=600) as loaded:
                path = book_recording(loaded, self.settings.cache, job.progress)
            known = (entry for entry in self.library.entries()[0] if entry.path == path)
            entry = next(known, None) or self.library.add(path, BOOK)
            return {"recording": entry.id}

        return self.jobs.start("book", work, key=("book",), bound=bound, title=BOOK)

    def start_generate(
        self, text: str, model: str, new_tokens: int, temperature: float, *, name: str = "", bound: bool
    ) -> Job:
        """Let a model continue a text, and record all of it."""

        def work(job: Job) -> dict[str, Any]:
            with self.shelf.use(model, patience=600) as loaded:
                store = self.scratch / f"{job.id}.regard"
                generate(loaded, text, store, job, new_tokens=new_tokens, temperature=temperature)
            return {"recording": self.library.add(store, title).id}

        title = name.strip() or _title(text)
        return self.jobs.start("generate", work, bound=bound, title=title)

    def start_atlas(self, entry: Entry, *, bound: bool) -> Job:
        """Survey every head of a recording."""
        from regard.engine.stopping import stoppable
        from regard.viewer.causes import survey

        def work(job: Job) -> dict[str, Any]:
            # Check for cancellation within a layer, because a layer of a book takes a quarter of a minute.
            with stoppable(job.check):
                self.atlases[entry.id] = survey(entry.recording, job.progress)
            return {"recording": entry.id}

        return self.jobs.start("atlas", work, key=("atlas", entry.id), bound=bound, title=entry.name)

    def knockout(
        self, entry: Entry, wanted: dict[str, Any], job: Job | None = None, patience: float = PATIENCE
    ) -> dict[str, Any]:
        """The effect of a cut on the next token of the recording's model."""
        from regard.viewer.causes import cut

        model = self._model_to_cut(entry)
        shape = entry.shapes.get("decoder")
        causal = shape is not None and shape.causal and shape.queries == shape.keys
        with self.shelf.use(model, patience=patience) as loaded:
            self.check_model(entry, loaded.model)
            progress = None if job is None else job.progress
            return cut(loaded, entry.recording, wanted, causal=causal, progress=progress)

    def start_knockout(self, entry: Entry, wanted: dict[str, Any], *, bound: bool) -> Job:
        """Start a cut as a job with progress, for long texts."""
        self._model_to_cut(entry)  # invalid cuts are refused now, and not in the job

        def work(job: Job) -> dict[str, Any]:
            return {"knockout": self.knockout(entry, wanted, job, patience=600)}

        return self.jobs.start("knockout", work, bound=bound, title=entry.name)

    def _model_to_cut(self, entry: Entry) -> str:
        if "decoder" not in entry.recording.token_ids:
            raise HTTPException(409, "the recording holds no token ids, so the model cannot be run on them.")
        if {"vision", "audio"} & set(entry.shapes) or _of_a_sound(entry.recording):
            raise HTTPException(
                409,
                "the model saw an image or heard a sound, which the recording does not hold, so it cannot "
                "be run again from here. Use regard.knockout with what the processor gives.",
            )
        return self.model_of(entry)

    def words(self, entry: Entry, layer: Layer) -> Any:
        """The tokens of a layer's queries and keys for the atlas; read once per recording."""
        from regard.atlas.words import words_of

        name = entry.id, layer.role
        if name not in self._words:
            self._words[name] = words_of(entry.recording, layer)
        return self._words[name]

    def aligned(self, first: Entry, second: Entry, role: str) -> tuple[Aligned, Aligned]:
        """The tokens of a stack's queries, and those of its keys, that two recordings have in common."""
        key = first.id, second.id, role
        if key not in self._aligned:
            sides = []
            for entry in (first, second):
                shape = self.shape(entry, role)
                sides.append(axis_names(entry.recording, role, shape.queries, shape.keys))
            found = align(sides[0][0], sides[1][0]), align(sides[0][1], sides[1][1])
            self._aligned = dict(list(self._aligned.items())[-15:]) | {key: found}
        return self._aligned[key]

    def model_of(self, entry: Entry) -> str:
        """The model that made a recording; 409 if it is not available."""
        name = self.shelf.of(entry.recording)
        if name is None:
            made = entry.recording.model.name
            raise HTTPException(
                409, f"the model {made!r} is not loaded. Start regard view with --model to run it again."
            )
        return name

    def check_model(self, entry: Entry, model: Any) -> None:
        """Raise RecordingError unless this model is the recorded one, including its weights."""
        if entry.id not in self._checked:
            entry.recording.check_model(model)
            self._checked.add(entry.id)

    def next_tokens(self, entry: Entry, query: int) -> list[dict[str, Any]]:
        """The model's prediction after a query's token; empty if the model can't be run."""
        ids = entry.recording.token_ids.get("decoder")
        name = self.shelf.of(entry.recording)
        if name is None or ids is None or query >= min(LONGEST, ids.shape[1]):
            return []
        if (entry.id, query) not in self._next:
            try:
                found = self._asked(entry, name, ids[:1, : query + 1])
            except RegardError:
                # Show the steps without the prediction.
                return []
            self._next = dict(list(self._next.items())[-255:]) | {(entry.id, query): found}
        return self._next[entry.id, query]

    def _asked(self, entry: Entry, name: str, ids: torch.Tensor) -> list[dict[str, Any]]:
        with self.shelf.use(name) as loaded:
            self.check_model(entry, loaded.model)
            if loaded.model.config.is_encoder_decoder:
                return []
            with torch.no_grad():
                out = loaded.model(input_ids=ids.to(loaded.model.device), **last_only(loaded.model))
            logits = getattr(out, "logits", None)
            return [] if logits is None else likeliest(logits[0, -1].cpu(), loaded.tokenizer)


def remove_abandoned() -> None:
    """Remove the temporary folders of servers that were killed."""
    if os.name == "nt":
        return  # no way to ask there whether a process is alive
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*-*"):
        number = folder.name.removeprefix(SCRATCH).split("-")[0]
        try:
            ours = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
            if ours and number.isdecimal() and not _alive(int(number)):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # another server was faster


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _title(text: str) -> str:
    """The first words of a text, as a name for its recording."""
    words = " ".join(text.split()[:6])
    return words[:40] or "text"


def _of_a_sound(recording: Recording) -> bool:
    """Whether the model read a sound, whose frames are not tokens."""
    return any(
        one.name.startswith(("sound", "image"))
        for role in ("encoder", "decoder")
        for row in recording.passages_of(role)
        for one in row
    )
