"""Samples a few numbers of every weight of a model, also if the weights are sharded over processes."""

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

# Numbers read per weight: enough to notice training, cheap for any model size.
SAMPLES = 64


def samples_of(model: Module, within: Module | None = None) -> Iterator[tuple[str, Tensor, Tensor]]:
    """For each weight, in the order of the state dict, its name, the weight and its sample.

    Weights sharded by FSDP or DTensor are gathered one module at a time, so all processes must call this.
    `within` is the model's wrapper, if any.
    """
    within = model if within is None else within
    weights = _gathered(model, within) if _units(within) else _tensors(model.state_dict())
    for name, weight in weights:
        yield name, weight, _sample(weight)


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state dict; quantised layers hold some in tuples, beside other values."""
    for name, value in state.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from _tensors({f"{name}.{place}": part for place, part in enumerate(cast("Any", value))})


def _sample(weight: Tensor) -> Tensor:
    """Numbers spread over a weight; empty for a weight on the meta device."""
    if weight.is_meta or not weight.numel():
        return torch.empty(0)
    whole = getattr(weight, "full_tensor", None)
    if whole is not None:
        # A DTensor: gather it, so that the fingerprint doesn't depend on the sharding. All processes take
        # part.
        weight = whole()
    if weight.is_quantized or type(weight) not in (Tensor, Parameter):
        # Quantised weights may not support slicing.
        weight = getattr(weight, "dequantize", lambda: weight)()
    flat = weight.detach().reshape(-1)
    # Copy, because views would keep all gathered weights in memory.
    return flat[:: -(-flat.numel() // SAMPLES)].clone()


def _units(model: Module) -> list[Any]:
    """The modules wrapped by torch's FullyShardedDataParallel, outermost first."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return (
        [] if fsdp is None else [m for m in model.modules() if isinstance(m, fsdp.FullyShardedDataParallel)]
    )


def _gathered(model: Module, within: Module) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model in FullyShardedDataParallel, gathered one wrapped module at a time."""
    if within is model and any(unit._is_root is None for unit in _units(model)):
        # Before the first run, FSDP would take the first gathered module for the root, and break the model.
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
    """The entries of a state dict, in its order, without the name prefixes that FSDP adds."""
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
    """Gather the weights of one module within the block."""
    return unit.summon_full_params(unit, recurse=False, writeback=False)
