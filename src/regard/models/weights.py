"""A few numbers of every weight of a model, however its weights are spread over processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from regard.errors import ModelError

__all__ = ["samples_of"]

# So many numbers of each weight are read: enough to notice training, cheap for any size.
SAMPLES = 64


def samples_of(model: Module, within: Module | None = None) -> Iterator[tuple[str, Tensor, Tensor]]:
    """For each weight, in the order of the state dict, its name, the weight and its sample.

    Weights that FSDP or DTensor spread are gathered one part at a time, so all processes must ask at once.
    `within` is what wraps the model, if anything does.
    """
    within = model if within is None else within
    weights = _gathered(model, within) if _units(within) else _tensors(model.state_dict())
    for name, weight in weights:
        yield name, weight, _sample(weight)


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model; quantised layers hold some in tuples, beside what are no weights."""
    for name, value in state.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from _tensors({f"{name}.{place}": part for place, part in enumerate(cast("Any", value))})


def _sample(weight: Tensor) -> Tensor:
    """A few numbers of a weight, spread over it; a weight that is not there has none."""
    if weight.is_meta or not weight.numel():
        return torch.empty(0)
    whole = getattr(weight, "full_tensor", None)
    if whole is not None:
        # A DTensor: the model is the same however its weights are spread, and all processes ask at once.
        weight = whole()
    if weight.is_quantized or type(weight) not in (Tensor, Parameter):
        # Quantised weights of libraries slice in ways of their own, or not at all.
        weight = getattr(weight, "dequantize", lambda: weight)()
    flat = weight.detach().reshape(-1)
    # A copy: a view would keep gathered weights in memory, all of the model in the end.
    return flat[:: -(-flat.numel() // SAMPLES)].clone()


def _units(model: Module) -> list[Any]:
    """The parts that torch's FullyShardedDataParallel wraps, outermost first."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return (
        [] if fsdp is None else [m for m in model.modules() if isinstance(m, fsdp.FullyShardedDataParallel)]
    )


def _gathered(model: Module, within: Module) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model in FullyShardedDataParallel, one wrapped part after another."""
    if within is model and any(unit._is_root is None for unit in _units(model)):
        # The first part to be gathered takes itself for the outermost, and the model no longer runs.
        kind = type(model).__name__
        raise ModelError(
            f"the {kind} holds FullyShardedDataParallel parts that have not run yet, and its weights cannot "
            f"be read; give what wraps the {kind}, or run the model once before."
        )
    with ExitStack() as stack:
        for unit in _units(within):
            if any(part is model for part in unit.modules()):
                stack.enter_context(_whole(unit))
        yield from _walk(model, "")


def _walk(module: Module, name: str) -> Iterator[tuple[str, Tensor]]:
    """What a state dict has, in its order, without the names that FSDP adds."""
    for own, weight in module._parameters.items():
        if weight is not None:
            yield f"{name}{own}", weight
    for own, buffer in module._buffers.items():
        if buffer is not None and own not in module._non_persistent_buffers_set:
            yield f"{name}{own}", buffer
    for child, part in module.named_children():
        unit: Any = next(iter(_units(part)), None)
        with _whole(part) if unit is part else nullcontext():
            yield from _walk(unit.module if unit is part else part, f"{name}{child}.")


def _whole(unit: Any) -> AbstractContextManager[None]:
    """One part with its weights gathered, until the block ends."""
    return unit.summon_full_params(unit, recurse=False, writeback=False)
