"""Where a model attends: its layers, their heads, and the matrix that mixes each head's output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import MapError, ModelError
from regard.models.switch import check_model
from regard.models.watch import watch

__all__ = ["Anatomy", "Callers", "output_projection"]

# Names that models give to the matrix that mixes the heads' outputs.
PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "o", "out_lin", "to_out", "linear_out", "proj")


@dataclass(frozen=True)
class Anatomy:
    """The layers of a model that attend to its text, by number, and how many heads each has.

    `sites` finds a layer by the name of its module and by how often that module has attended before in the
    same pass, since some models use one module for all layers.
    """

    heads: dict[int, int]
    sites: dict[tuple[str, int], int]

    @classmethod
    def of(cls, model: Any, ids: Int[Tensor, "1 n"]) -> Anatomy:
        """Found by watching the model read one token; numbers are those that a recording has."""
        check_model(model)
        if model.config.is_encoder_decoder:
            raise ModelError(
                f"{type(model).__name__} reads one text and writes another; cuts are made in models that "
                "read one text, such as LlamaForCausalLM or BertForMaskedLM."
            )
        with torch.no_grad(), watch(model, stats=(), keep_maps=False) as recording:
            model(input_ids=ids[:, :1])
        if not recording.stacks:
            raise ModelError(f"{type(model).__name__} did not attend to anything; there is nothing to cut.")
        layers = sorted(recording.layers.values(), key=lambda layer: layer.index)
        return cls(
            {layer.index: layer.lse.shape[1] for layer in layers},
            {(layer.site.name, layer.site.turn): layer.index for layer in layers},
        )

    def check(self, layer: int, head: int | None = None) -> None:
        """Raise MapError, with the valid range, unless there is such a layer (and head)."""
        if layer not in self.heads:
            raise MapError(f"there is no layer {layer}; the layers that attend are {_listed(self.heads)}.")
        if head is not None and not 0 <= head < self.heads[layer]:
            raise MapError(f"layer {layer} has no head {head}; its heads are 0 to {self.heads[layer] - 1}.")


class Callers:
    """Finds the layer that an attention call comes from, while a model runs."""

    def __init__(self, model: Any, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._names = {id(module): name for name, module in model.named_modules()}
        self._turns: Counter[int] = Counter()

    def begin(self) -> None:
        """Before each run of the model."""
        self._turns.clear()

    def layer(self, module: torch.nn.Module) -> int | None:
        """The layer of the current call; None for attention outside the main stack."""
        site = self._names[id(module)], self._turns[id(module)]
        self._turns[id(module)] += 1
        return self.anatomy.sites.get(site)


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


def _listed(layers: dict[int, int]) -> str:
    numbers = list(layers)
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
