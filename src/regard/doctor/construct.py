"""Makes a module from its class, with small sizes for the required arguments."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from regard.doctor.settings import HEAD_WIDTH, HEADS, MODEL
from regard.errors import RegardError

__all__ = ["construct"]

WIDTH, HEAD_COUNT, LONGEST = 32, 4, 64
# Values by name pattern; the first match counts.
GUESSES: tuple[tuple[str, Any], ...] = (
    (r".*(drop|prob).*|(.*_)?rate", 0.0),
    (r".*(kv|key_value|query).*(heads?|groups?).*|n_groups|num_groups", HEAD_COUNT),
    (HEADS, HEAD_COUNT),
    (HEAD_WIDTH + r"|d_?v|(key|value|qk|v)_?(dim|size)|.*head_(dim|size)", WIDTH // HEAD_COUNT),
    (r".*vocab.*|num_embeddings|n_tokens", LONGEST),
    (r".*(block_size|context|max_|seq|ctx|length|position).*", LONGEST),
    (r"n_?layers?|num_?(hidden_)?layers|depth|max_batch_size", 4),
    (r"layer_?(idx|id|index|number|num)|idx|block_idx", 0),
    (r".*theta.*|.*base.*", 10000.0),
    (r"temperature|tau|.*attn_scalar", (WIDTH // HEAD_COUNT) ** 0.5),
    (r"scale|scaling", (WIDTH // HEAD_COUNT) ** -0.5),
    (r".*eps.*", 1e-5),
    (r"window_size|input_resolution|resolution", (2, 3)),
    (r"device", "cpu"),
    (r"dtype|torch_dtype", None),
    (r".*(bias|use_|flash|is_|with_|enable|batch_first|causal).*", False),
    (
        MODEL
        + r"|d_?out|out_?(features|dim)|output_dim|.*(embed|hidden|model|channel|dim|width|size|feature).*",
        WIDTH,
    ),
    (r"r|rank|alpha|.*lora.*", 4),
)
CONFIGS = r"config|cfg|args|params|hparams|c|conf|opt|options|model_args"


class Sketch:
    """A configuration object that returns a small size for every attribute or key."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _guess(name, None)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Like `dict.get`."""
        return self.__dict__.get(name, default)


def construct(kind: Callable[..., Any], given: Mapping[str, Any] | None = None) -> Any:
    """Make an instance from the given arguments and small guesses for the others.

    >>> construct(dict)
    {}
    """
    given = dict(given or {})
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return kind(**given)
    parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    strange = [name for name in given if name not in {p.name for p in parameters}]
    hints = _hints(kind)
    configs = [p for p in parameters if p.default is p.empty and re.fullmatch(CONFIGS, p.name)]
    if strange and not configs:
        known = ", ".join(p.name for p in parameters) or "no arguments"
        raise RegardError(f"{kind.__name__} takes no {strange[0]}; it takes {known}.")
    chosen = {name: value for name, value in given.items() if name not in strange}
    for parameter in parameters:
        if parameter.name in chosen or parameter.default is not parameter.empty:
            continue
        hint = hints.get(parameter.name)
        if parameter in configs or dataclasses.is_dataclass(hint):
            chosen[parameter.name] = _configuration(hint, {name: given[name] for name in strange})
        else:
            chosen[parameter.name] = _guess(parameter.name, hint)
    unknown = [name for name, value in chosen.items() if value is None and name not in given]
    # An argument of unknown meaning is usually None, or else a size.
    for value in (None, WIDTH) if unknown else ():
        chosen |= dict.fromkeys(unknown, value)
        with suppress(Exception):
            return _made(kind, parameters, chosen)
    try:
        return _made(kind, parameters, chosen)
    except Exception as error:
        words = ", ".join(
            f"{name}={value!r}" for name, value in chosen.items() if not isinstance(value, Sketch)
        )
        asked = unknown[0] if unknown else next(iter(chosen), "name")
        raise RegardError(
            f"{kind.__name__}({words}) could not be made ({type(error).__name__}: {error}). "
            f"Give its arguments with --with, as in --with {asked}=…, or make it in the file and name that."
        ) from error


def _made(kind: Callable[..., Any], parameters: list[inspect.Parameter], chosen: dict[str, Any]) -> Any:
    alone = [p.name for p in parameters if p.kind == p.POSITIONAL_ONLY]
    rest = {name: value for name, value in chosen.items() if name not in alone}
    return kind(*(chosen[name] for name in alone if name in chosen), **rest)


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind.__init__)
    except Exception:
        return {}


def _guess(name: str, hint: Any) -> Any:
    lowered = name.strip("_").lower()
    if hint is bool:
        return False
    for pattern, value in GUESSES:
        if re.fullmatch(pattern, lowered):
            return value
    return WIDTH if hint is int else 0.0 if hint is float else None


def _configuration(hint: Any, given: Mapping[str, Any]) -> Any:
    """A configuration of the annotated class with small sizes, or a `Sketch`."""
    if not dataclasses.is_dataclass(hint) or not isinstance(hint, type):
        return Sketch(given)
    chosen = dict(given)
    for field in dataclasses.fields(hint):
        if field.name in chosen or not field.init:
            continue
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        small = _guess(field.name, None)
        sized = isinstance(field.default, int) and not isinstance(field.default, bool)
        if needed or (sized and isinstance(small, int) and not isinstance(small, bool)):
            chosen[field.name] = small if small is not None else _guess(field.name, int)
    return hint(**chosen)
