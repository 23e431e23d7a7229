"""Masks as plain JSON data, and back."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from regard.errors import MaskError
from regard.extension import implements
from regard.masks.base import Mask
from regard.masks.causal import Causal
from regard.masks.chunk import Chunk
from regard.masks.dense import Dense
from regard.masks.documents import Documents
from regard.masks.global_tokens import Global
from regard.masks.joins import And, Not, Or
from regard.masks.padding import Padding
from regard.masks.prefix import Prefix
from regard.masks.random_blocks import RandomBlocks
from regard.masks.strided import Strided
from regard.masks.window import Window

__all__ = ["decode", "encode"]

SHAPES = (Causal, Chunk, Global, Prefix, RandomBlocks, Strided, Window)
JOINS = ("And", "Not", "Or")
KINDS: dict[str, Callable[..., Mask]] = {
    kind.__name__: kind for kind in (*SHAPES, And, Dense, Documents, Not, Or, Padding)
}


@implements(Mask.to_json)
def encode(mask: Mask) -> dict[str, Any]:
    """A mask as a dict of JSON types: its class name under "type", then its constructor's arguments.

    >>> encode(Causal() & Documents(lengths=[2, 3]))["parts"][1]
    {'type': 'Documents', 'lengths': [2, 3]}
    """
    name = type(mask).__name__
    match mask:
        case And() | Or() | Not():
            return {"type": name, "parts": [encode(part) for part in mask.parts]}
        case Padding():
            return {"type": name, "valid": _packed(mask.valid)}
        case Dense():
            return {"type": name, "allowed": _packed(mask.allowed)}
        case Documents(lengths=tuple(lengths)):
            return {"type": name, "lengths": list(lengths)}
        case Documents():
            return {"type": name, "ids": _runs(mask.ids)}
        case _:
            pass
    if not isinstance(mask, SHAPES):
        raise MaskError(
            f"{mask!r} has no JSON form: only regard's own shapes can be written down. "
            "Write its matrix instead: Dense(mask.dense(q, k))."
        )
    values = {f.name: getattr(mask, f.name) for f in dataclasses.fields(mask)}
    return {"type": name} | {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


@implements(Mask.from_json)
def decode(data: dict[str, Any]) -> Mask:
    """The mask that `encode` wrote.

    >>> decode({"type": "Not", "parts": [{"type": "Causal", "shift": 0}]})
    ~Causal()
    """
    if not isinstance(data, dict) or "type" not in data:
        raise MaskError(f'{data!r} is not a mask; wanted a dict with a "type", as Mask.to_json writes.')
    name, fields = data["type"], {key: value for key, value in data.items() if key != "type"}
    if name not in KINDS:
        raise MaskError(f"no mask is called {name!r}; known are {', '.join(sorted(KINDS))}.")
    try:
        if name in JOINS:
            return KINDS[name](*[decode(part) for part in fields["parts"]])
        values = {key: _tensor(value) if isinstance(value, dict) else value for key, value in fields.items()}
        return KINDS[name](**values)
    except MaskError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise MaskError(f"{name} cannot be read from {fields}: {error!r}.") from error


def _packed(flags: Bool[Tensor, "*shape"]) -> dict[str, Any]:
    """A bool tensor as its shape and eight flags to the byte, the first in the highest bit."""
    flat = torch.nn.functional.pad(flags.cpu().flatten(), (0, -flags.numel() % 8))
    packed = (flat.view(-1, 8) * _BITS).sum(1, dtype=torch.uint8)
    return {"shape": list(flags.shape), "bits": base64.b64encode(bytes(packed.tolist())).decode()}


def _runs(ids: Int64[Tensor, "*shape"]) -> dict[str, Any]:
    """An int tensor as its shape and its runs of equal numbers."""
    values, counts = ids.cpu().flatten().unique_consecutive(return_counts=True)
    return {"shape": list(ids.shape), "values": values.tolist(), "counts": counts.tolist()}


def _tensor(data: dict[str, Any]) -> Tensor:
    """Decode the output of `_packed` or `_runs`."""
    size = math.prod(data["shape"])
    if "bits" in data:
        packed = torch.tensor(list(base64.b64decode(data["bits"], validate=True)), dtype=torch.uint8)
        flat, slack = (packed[:, None] & _BITS).bool().flatten(), -size % 8
    else:
        flat, slack = torch.tensor(data["values"]).repeat_interleave(torch.tensor(data["counts"])), 0
    if flat.numel() != size + slack:
        raise MaskError(
            f"a tensor of shape {data['shape']} holds {size} values and {flat.numel()} were written."
        )
    return flat[:size].view(data["shape"])


_BITS: UInt8[Tensor, "8"] = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8)
