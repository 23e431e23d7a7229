"""The models that a server can run: the bundled one, and the one it was started with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.errors import ModelError
from regard.models import LoadedModel, Recording, bundled, load_model
from regard.models.bundled import DATA

__all__ = ["BUNDLED", "HALF", "PATIENCE", "Shelf", "model_name"]

BUNDLED = "bundled"
# The bundled model as it reads the book: in half the memory, on disk too.
HALF = "bundled, bfloat16"
# Seconds that a request waits for a model that is reading another text.
PATIENCE = 20.0


class Shelf:
    """Models by name, each loaded at its first use and used by one thread at a time.

    A model that is being watched attends through other code, so two threads must not share it.
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
        """Keep a model that was loaded elsewhere."""
        self._loaded[self._checked(name)] = loaded

    def load(self, name: str) -> LoadedModel:
        """A model and its tokenizer."""
        name = self._checked(name)
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = self._made(name)
            return self._loaded[name]

    def _made(self, name: str) -> LoadedModel:
        if name == HALF:
            return load_model(BUNDLED, dtype="bfloat16")
        return LoadedModel(*bundled()) if name == BUNDLED else load_model(self.given or "")

    @contextmanager
    def use(self, name: str, patience: float = PATIENCE) -> Iterator[LoadedModel]:
        """A model for this thread alone; ModelError if another thread does not release it."""
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
        """The name of the model that made a recording; whether its weights are the same is checked in use."""
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
    """How a page calls a model: the last part of its path; the bundled one is called so.

    >>> model_name("models/tiny-llama"), model_name("someone/some-model")
    ('tiny-llama', 'some-model')
    """
    return BUNDLED if name == str(DATA) else Path(name).name or name
