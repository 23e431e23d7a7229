"""`Steps`: the steps of one computation by name, without displays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from regard.errors import MapError
from regard.tracing.labels import count
from regard.tracing.recipe import Recipe
from regard.tracing.step import Step

__all__ = ["Steps"]


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """Every step in order, each under its name, and the recipe they follow. `Trace` adds the displays."""

    steps: tuple[Step, ...]
    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    batch: int
    heads: int
    recipe: Recipe = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the steps, in order."""
        return [step.name for step in self.steps]

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise MapError(self._no(name))

    def __getattr__(self, name: str) -> Tensor:
        # Copying and unpickling access attributes before `steps` is set.
        for step in self.__dict__.get("steps", ()):
            if step.name.replace(" ", "_") == name:
                return step.value
        raise AttributeError(self._no(name) if "steps" in self.__dict__ else name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.replace(" ", "_") for name in self.names)]

    def __repr__(self) -> str:
        size = f"{count(len(self.tokens), 'query', 'queries')} × {count(len(self.key_tokens), 'key', 'keys')}"
        size += f", {self.heads} heads" if self.heads > 1 else ""
        size += f", {self.batch} batch rows" if self.batch > 1 else ""
        return f"{type(self).__name__}({size}: {', '.join(self.names)})"

    def _no(self, name: str) -> str:
        return f"this trace has no step {name!r}; it has {', '.join(self.names)}."
