"""The attention layers of a model: their heads, and the output matrix of each head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import MapError, ModelError
from regard.models.switch import check_model
from regard.models.watch import watch

__all__ = ["Anatomy", "Callers", "Place", "output_projection"]

# Attribute names of the output matrix in models.
PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "o", "out_lin", "to_out", "linear_out", "proj")


@dataclass(frozen=True)
class Place:
    """An attention layer of a model: its stack, its number, and its numbers of heads, queries and keys."""

    stack: str
    layer: int
    heads: int
    queries: int
    keys: int


@dataclass(frozen=True)
class Anatomy:
    """The attention layers of a model, by module name and turn.

    The turn counts the calls of the module in one pass, since some models use one module for all layers.
    `main` is the stack of layers that are given without a stack.
    """

    main: str
    sites: dict[tuple[str, int], Place]

    @classmethod
    def of(cls, model: Any, given: Mapping[str, Any]) -> Anatomy:
        """Find the layers by watching one run of the model; numbers are those of a recording."""
        check_model(model)
        with torch.no_grad(), watch(model, stats=(), keep_maps=False) as recording:
            model(**given)
        if not recording.stacks:
            raise ModelError(f"{type(model).__name__} did not attend to anything; there is nothing to cut.")
        layers = sorted(recording.all_layers, key=lambda layer: layer.index)
        sites = {
            (layer.site.name, layer.site.turn): Place(
                layer.role, layer.index, layer.lse.shape[1], layer.frame.q, layer.frame.k
            )
            for layer in layers
        }
        return cls(recording.layers.role, sites)

    @classmethod
    def of_text(cls, model: Any, ids: Int[Tensor, "1 n"]) -> Anatomy:
        """Find the layers of a model that reads one text, by watching it read one token."""
        if model.config.is_encoder_decoder:
            raise ModelError(
                f"{type(model).__name__} reads one text and writes another; use a model that reads one text, "
                "such as LlamaForCausalLM or BertForMaskedLM. `knockout` cuts heads of both kinds."
            )
        one, n = cls.of(model, {"input_ids": ids[:, :1]}), ids.shape[1]
        sites = {site: replace(place, queries=n, keys=n) for site, place in one.sites.items()}
        return cls(one.main, {site: place for site, place in sites.items() if place.stack == one.main})

    @cached_property
    def stacks(self) -> dict[str, dict[int, Place]]:
        """The layers of each stack by number, in order."""
        found: dict[str, dict[int, Place]] = {}
        for place in self.sites.values():
            found.setdefault(place.stack, {})[place.layer] = place
        return found

    @property
    def heads(self) -> dict[int, int]:
        """The number of heads of each layer of the main stack."""
        return {layer: place.heads for layer, place in self.stacks[self.main].items()}

    def layers_of(self, stack: str | None) -> dict[int, Place]:
        """The layers of one stack, by default the main one."""
        if stack is not None and stack not in self.stacks:
            raise MapError(
                f"there is no stack {stack!r}; the stacks that attend are {', '.join(self.stacks)}."
            )
        return self.stacks[stack or self.main]

    def check(self, layer: int, head: int | None = None, stack: str | None = None) -> None:
        """Raise MapError, with the valid range, unless there is such a layer (and head)."""
        layers, of = self.layers_of(stack), "" if stack is None else f" of the {stack}"
        if layer not in layers:
            raise MapError(f"there is no layer {layer}{of}; the layers that attend are {_listed(layers)}.")
        if head is not None and not 0 <= head < layers[layer].heads:
            raise MapError(
                f"layer {layer}{of} has no head {head}; its heads are 0 to {layers[layer].heads - 1}."
            )


class Callers:
    """Finds the layer that an attention call comes from, while a model runs."""

    def __init__(self, model: Any, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._names = {id(module): name for name, module in model.named_modules()}
        self._turns: Counter[int] = Counter()

    def begin(self) -> None:
        """Before each run of the model."""
        self._turns.clear()

    def place(self, module: torch.nn.Module) -> Place | None:
        """The layer of the current call; None if the anatomy doesn't have it."""
        site = self._names[id(module)], self._turns[id(module)]
        self._turns[id(module)] += 1
        return self.anatomy.sites.get(site)

    def layer(self, module: torch.nn.Module) -> int | None:
        """The number of the layer of the current call; None for attention outside the main stack."""
        place = self.place(module)
        return None if place is None or place.stack != self.anatomy.main else place.layer


def output_projection(
    model: Any, name: str, heads: int, dim: int
) -> Float[Tensor, "heads v_dim d_model"] | None:
    """Each head's rows of the output matrix; None if no such matrix is found.

    `name` is the attention module's. The matrix is a linear layer in the module, or beside it, that has one
    of the usual names and as many inputs as all heads have outputs.
    """
    parents = [name, name.rpartition(".")[0]]
    for parent in (model.get_submodule(parent) for parent in parents if parent):
        for path, module in parent.named_modules():
            weight = getattr(module, "weight", None)
            if path.rpartition(".")[2] not in PROJECTIONS or not isinstance(weight, Tensor):
                continue
            # transformers' Conv1D stores the transpose of what a Linear stores.
            weight = weight if type(module).__name__ == "Conv1D" else weight.mT
            if weight.ndim == 2 and weight.shape[0] == heads * dim:
                return weight.detach().unflatten(0, (heads, dim))
    return None


def _listed(layers: Mapping[int, Any]) -> str:
    numbers = list(layers)
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
