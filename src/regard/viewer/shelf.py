"""The models that a server can run: the bundled model, and the one it was started with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from regard.errors import ModelError
from regard.models import LoadedModel, Recording, bundled, load_model
from regard.models.bundled import DATA
from regard.viewer.starting import MAKING

__all__ = ["BUNDLED", "HALF", "PATIENCE", "Shelf", "model_name"]

BUNDLED = "bundled"
# The name of the bundled model in bfloat16, for the book: it halves memory and disk space.
HALF = "bundled, bfloat16"
# Seconds that a request waits for a busy model.
PATIENCE = 20.0
# Seconds until a model is loaded that nobody has needed yet: importing holds up the threads that answer.
WARMING = 3.0


class Shelf:
    """Models by name, each loaded on first use, and used by one thread at a time.

    Watching a model replaces its attention, so two threads must not share it.
    """

    def __init__(self, given: str | None = None) -> None:
        self.given = given
        self._loaded: dict[str, LoadedModel] = {}
        self._loading = threading.Lock()
        self._using: dict[str, threading.Lock] = {name: threading.Lock() for name in [*self.names, HALF]}

    @property
    def names(self) -> list[str]:
        """The names that a page may choose from; the first is the default."""
        return [BUNDLED] if self.given is None else [model_name(self.given), BUNDLED]

    def put(self, name: str, loaded: LoadedModel) -> None:
        """Add a model that was loaded elsewhere."""
        self._loaded[self._checked(name)] = loaded

    def load(self, name: str) -> LoadedModel:
        """A model and its tokenizer."""
        name = self._checked(name)
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = self._made(name)
            return self._loaded[name]

    def warm(self, name: str, seconds: float = WARMING) -> None:
        """Load a model in the background, after a while in which a page can draw its first picture.

        If that fails, whoever needs the model first is told why.
        """
        if name in self._loaded:
            return

        def load() -> None:
            time.sleep(seconds)
            with suppress(Exception):
                self.load(name)

        threading.Thread(target=load, name=MAKING, daemon=True).start()

    def _made(self, name: str) -> LoadedModel:
        if name == HALF:
            return load_model(BUNDLED, dtype="bfloat16")
        return LoadedModel(*bundled()) if name == BUNDLED else load_model(self.given or "")

    @contextmanager
    def use(self, name: str, patience: float = PATIENCE) -> Iterator[LoadedModel]:
        """Lock a model for this thread within the block; ModelError if another thread doesn't release it."""
        loaded = self.load(name)
        lock = self._using[name]
        if not lock.acquire(timeout=patience):
            raise ModelError(
                f"the model {name!r} is busy with another text. Wait for that job, or cancel it."
            )
        try:
            yield loaded
        finally:
            lock.release()

    def of(self, recording: Recording) -> str | None:
        """The name of the model that made a recording; its weights are compared when it is used."""
        for name in self.names:
            source = str(DATA) if name == BUNDLED else str(Path(self.given or "").expanduser())
            if recording.model.name in (source, self.given if name != BUNDLED else source):
                return HALF if name == BUNDLED and _in_half(recording) else name
        return None

    def _checked(self, name: str) -> str:
        if name not in (*self.names, HALF):
            raise KeyError(f"no model is called {name!r}; there are {', '.join(map(repr, self.names))}.")
        return name


def _in_half(recording: Recording) -> bool:
    """Whether a recording's keys are bfloat16, as in a model of that dtype."""
    layer = next(iter(recording.all_layers), None)
    key = None if layer is None or not layer.segments else layer.segments[0].k
    return key is not None and key.dtype == torch.bfloat16


def model_name(name: str) -> Any:
    """The display name of a model: the last part of its path; "bundled" for the bundled one.

    >>> model_name("models/tiny-llama"), model_name("someone/some-model")
    ('tiny-llama', 'some-model')
    """
    return BUNDLED if name == str(DATA) else Path(name).name or name
