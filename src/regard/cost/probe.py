"""Builds the model of a config on the meta device, and runs it to record products, calls and the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.cost.anatomy import Anatomy, anatomy
from regard.cost.calls import NAME, Call, listening
from regard.cost.products import Products
from regard.errors import NotCountedError

__all__ = ["Pass", "Probe", "build", "kept_numbers", "numbers_in", "probe"]

# Three lengths distinguish counts that grow with tokens from those that grow with pairs of tokens.
LENGTHS = (2, 3, 4)
STATES = ("recurrent_states", "conv_states")
WIDE = "float32"


@dataclass(frozen=True)
class Pass:
    """One pass over `length` tokens: its products, its attention calls, the numbers that each layer
    caches."""

    products: Products
    calls: list[Call]
    kept: list[dict[str, int]] | None


@dataclass(frozen=True)
class Probe:
    """A model built without weights, and a pass at each of `LENGTHS`.

    `config` is the config of its text part; `partial` says whether the model has other parts.
    """

    model: nn.Module
    config: Any
    partial: bool
    anatomy: Anatomy
    passes: dict[int, Pass]


def probe(config: Any, model_class: Any) -> Probe:
    """Build the model of a config and run it on the meta device."""
    config = deepcopy(config)  # building sets how attention and experts run
    with _quiet():
        model = build(config, model_class)
        text = config.get_text_config()
        parts = anatomy(model, text)
        try:
            with _shortened(parts):
                passes = {length: _pass(model, parts, length) for length in LENGTHS}
        except Exception:
            # Skipping layers fails if a layer reads another one's cache; then run all layers.
            parts.alike = list(range(len(parts.layers)))
            passes = {length: _tried(model, parts, length) for length in LENGTHS}
    return Probe(model, text, text is not config, parts, passes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, silence transformers' warnings about slow kernels: nothing is computed."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _tried(model: nn.Module, parts: Anatomy, length: int) -> Pass:
    try:
        return _pass(model, parts, length)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotCountedError(
            f"transformers cannot run {type(model).__name__} without its weights, so what it keeps and "
            f"computes is not known: {reason}"
        ) from error


def build(config: Any, model_class: Any) -> nn.Module:
    """The model of a config on the meta device, with recordable attention calls if it supports them."""
    for each in (config, getattr(config, "text_config", None)):
        if each is not None:
            each._experts_implementation = "batched_mm"
    error: Exception | None = None
    with listening(lambda: None):  # registers the implementation
        for implementation in (NAME, "eager"):
            try:
                with torch.device("meta"):
                    # Use a dtype other than float32, so that states that are always in float32 can be
                    # recognised.
                    return model_class._from_config(
                        config, attn_implementation=implementation, dtype=torch.bfloat16
                    ).eval()
            except Exception as found:
                error = found
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    raise NotCountedError(
        f"transformers cannot build {config.model_type} from this config: {reason}"
    ) from error


class _Skipped(nn.Module):
    """Replaces a layer that has the same structure as an earlier one: returns that one's output."""

    def __init__(self, layer: nn.Module, outputs: dict[nn.Module, Any], like: nn.Module) -> None:
        super().__init__()
        # Stored in __dict__: as a submodule, its parameters would be counted here.
        self.__dict__.update(layer=layer, outputs=outputs, like=like)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["layer"], name)

    def forward(self, *args: Any, **more: Any) -> Any:
        return self.outputs[self.like]


@contextmanager
def _shortened(parts: Anatomy) -> Iterator[None]:
    """Within the block, run only the first of layers with the same structure."""
    outputs: dict[nn.Module, Any] = {}
    runs = {parts.layers[first] for first in set(parts.alike)}
    hooks = [layer.register_forward_hook(lambda m, _, out: outputs.update({m: out})) for layer in runs]
    for index, layer in enumerate(parts.layers):
        if layer not in runs:
            parts.stack[index] = _Skipped(layer, outputs, parts.layers[parts.alike[index]])
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for index, layer in enumerate(parts.layers):
            parts.stack[index] = layer


def _pass(model: nn.Module, parts: Anatomy, length: int) -> Pass:
    products = Products(parts.labels)
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    decoder = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))
    more = {"use_cache": True} if decoder else {}
    with (
        torch.no_grad(),
        torch.device("meta"),
        listening(lambda: products.stack[-1]) as calls,
        products,
    ):
        out = model(input_ids=tokens, **more)
    # Models without attention have another name for their cache.
    cache = getattr(out, "past_key_values", None) or getattr(out, "cache_params", None)
    return Pass(products, calls.made, kept_numbers(cache))


def kept_numbers(cache: Any) -> list[dict[str, int]] | None:
    """The numbers in each layer of a transformers cache: per-token tensors, and a recurrent state.

    `float32` is the number of state entries in float32. None if there is no cache, or if it holds numbers
    that belong to no layer.
    """
    layers = getattr(cache, "layers", None)
    if layers is None:
        return None
    linear = getattr(cache, "linear_cache", ())
    found = [_parts(layer) for layer in layers]
    found += [_parts(None) for _ in range(len(linear) - len(found))]
    for layer, state in zip(found, linear, strict=False):
        layer["recurrent_states"] += numbers_in(state)
        layer[WIDE] += _wide(state)
    everything = numbers_in(cache)
    counted = sum(count for layer in found for name, count in layer.items() if name != WIDE)
    return found if everything == counted else None


def _parts(layer: Any) -> dict[str, int]:
    held = {} if layer is None else vars(layer)
    tokens = numbers_in([value for name, value in held.items() if name not in STATES])
    states = {name: numbers_in(held.get(name)) for name in STATES}
    return {"tokens": tokens, **states, WIDE: sum(_wide(held.get(name)) for name in STATES)}


def _wide(found: Any) -> int:
    """The count of numbers in float32."""
    if isinstance(found, Tensor):
        return found.numel() if found.dtype == torch.float32 else 0
    if isinstance(found, dict):
        return sum(map(_wide, found.values()))
    return sum(map(_wide, found)) if isinstance(found, list | tuple) else 0


def numbers_in(found: Any) -> int:
    """The count of floating-point numbers in tensors, lists, dicts and caches.

    >>> numbers_in({"keys": [torch.ones(2, 3)], "length": torch.tensor(5)})
    6
    """
    if isinstance(found, Tensor):
        return found.numel() if found.is_floating_point() else 0
    if isinstance(found, dict):
        return sum(numbers_in(value) for value in found.values())
    if isinstance(found, list | tuple):
        return sum(numbers_in(value) for value in found)
    return numbers_in(vars(found)) if hasattr(found, "__dict__") and not callable(found) else 0
