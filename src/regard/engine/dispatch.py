"""Which backend runs a call, which one reads its map, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from regard.engine import backends
from regard.engine.backend import Backend, ShortObservation
from regard.engine.problem import Problem
from regard.errors import BackendError
from regard.masks import Mask

__all__ = ["Choice", "Dispatch", "choose", "named", "reader_of", "reference", "short", "short_observed"]

BY_NAME = "asked for by name"


@dataclass(frozen=True)
class Dispatch:
    """The backend of a call and the reason for it; and what would read its map for `observe`."""

    backend: str
    reason: str
    second_pass: str = ""

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}"


@dataclass(frozen=True)
class Choice:
    """A backend, and in words why it was chosen."""

    backend: Backend
    why: str


def choose(problem: Problem, name: str) -> Choice:
    """Choose a backend for `auto`. A backend given by name either runs the call or refuses it."""
    if name != "auto":
        backend = named(problem, name)
        refusal = backend.refusal(problem)
        if refusal is not None:
            use = f"Use backend={reference().name!r}."
            raise BackendError(f"backend={name!r} cannot run this call: {refusal}. {use}")
        return Choice(backend, BY_NAME)
    refused = ""
    for backend in _serving(backends.REGISTRY, problem.q.device.type):
        if backend.helper:
            continue
        refusal = backend.refusal(problem)
        if refusal is None:
            return Choice(backend, backend.reason(problem, refused))
        refused = f"{refused}; the {backend.name} backend: {refusal}" if refused else refusal
    raise RuntimeError("the reference backend refused a call")


def short(q: object, k: object, v: object, mask: Mask | Tensor | None, scale: object) -> Tensor | None:
    """The output of a call without options, from the first backend if it has a shorter way; else None."""
    if not (type(q) is Tensor and type(k) is Tensor and type(v) is Tensor):
        return None
    if not (scale is None or type(scale) is float):
        return None
    return _firsts(backends.REGISTRY, q.device.type)[0].short(q, k, v, mask, scale)


def short_observed(
    q: object, k: object, v: object, mask: Mask | None, scale: object, statistics: Sequence[object]
) -> ShortObservation | None:
    """The same for an observation, from the first backend that reads maps."""
    if not (type(q) is Tensor and type(k) is Tensor and type(v) is Tensor):
        return None
    if not (scale is None or type(scale) is float):
        return None
    reader = _firsts(backends.REGISTRY, q.device.type)[1]
    return reader.short_observed(q, k, v, mask, scale, tuple(statistics))


def reader_of(problem: Problem, name: str) -> Choice:
    """The backend that reads the map of a call; a helper does it for backends that read no maps."""
    serving = _serving(backends.REGISTRY, problem.q.device.type)
    if name == "auto":
        readers = [backend for backend in serving if backend.reads]
    else:
        asked = named(problem, name)
        readers = [asked] if asked.reads else [backend for backend in serving if backend.helper]
    refused = BY_NAME if reference() in readers and name != "auto" else ""
    for backend in readers:
        refusal = backend.refusal(problem)
        if refusal is None:
            return Choice(backend, backend.reading(problem, refused))
        refused = refused or refusal
    return Choice(reference(), reference().reading(problem, refused))


def named(problem: Problem, name: str) -> Backend:
    """The backend of a name for the device of a problem."""
    known = [backend for backend in backends.REGISTRY if not backend.helper]
    found = [backend for backend in known if backend.name == name]
    if not found:
        names = ", ".join(repr(each) for each in sorted({"auto", *(backend.name for backend in known)}))
        raise BackendError(f"backend={name!r} is unknown; regard has {names}.")
    serving = _serving(backends.REGISTRY, problem.q.device.type)
    return next((backend for backend in serving if backend.name == name), found[0])


def reference() -> Backend:
    """The backend that runs every call and defines the right result."""
    return backends.REGISTRY[-1]


@lru_cache(maxsize=64)
def _firsts(registry: tuple[Backend, ...], device: str) -> tuple[Backend, Backend]:
    """The first backend that runs calls on a type of device, and the first that reads maps there."""
    serving = _serving(registry, device)
    return next(each for each in serving if not each.helper), next(each for each in serving if each.reads)


@lru_cache(maxsize=64)
def _serving(registry: tuple[Backend, ...], device: str) -> tuple[Backend, ...]:
    """The backends for a type of device, best first; of one name the first."""
    found: dict[str, Backend] = {}
    for backend in registry:
        if backend.devices is None or device in backend.devices:
            found.setdefault(backend.name, backend)
    return tuple(found.values())
