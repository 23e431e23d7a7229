"""`estimate`: the cost of a model at several context lengths."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from regard.cost import report
from regard.cost.count import Scores, Work, cache_bytes, decode, prefill, scores, weight_bytes
from regard.cost.dtypes import BITS
from regard.cost.figures import AtContext, Figures
from regard.cost.fit import longest_context
from regard.cost.gpus import Gpu, gpu
from regard.cost.layers import layers_of
from regard.cost.parameters import parameters
from regard.cost.presets import preset
from regard.cost.roofline import Time, roofline
from regard.cost.shape import ModelShape
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

__all__ = ["Estimate", "estimate"]

USUAL = (1 << 10, 1 << 12, 1 << 15, 1 << 17, 1 << 20)


@dataclass(frozen=True)
class Estimate(Figures):
    """The cost of a model; `longest` is the longest context within the budget, None if there is no limit.

    >>> found = estimate("llama-7b", [2048])
    >>> found.at[0].cache["bfloat16"], found.parameters.total
    (1073741824, 6738415616)
    """

    def table(self, *, layers: bool = False) -> Group:
        """Tables for the terminal; with `layers`, one row for every layer at the longest context."""
        return report.table(self, layers=layers)

    def figure(self) -> Figure:
        """Prefill and decode FLOPs, cache and one layer's score matrices over context lengths."""
        return report.figure(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with unrounded numbers."""
        shape = self.shape
        return {
            "model": shape.name,
            "d_model": shape.d_model,
            "layers": shape.kinds,
            "trained_context": shape.context,
            "parameters": {
                **asdict(self.parameters),
                "active_without_embedding": self.parameters.active_without_embedding,
                "total": self.parameters.total,
            },
            "dtype": self.dtype,
            "cache_dtype": self.cache_dtype,
            "weight_bytes": self.weights,
            "batch": self.batch,
            "gpu": asdict(self.gpu) if self.gpu else None,
            "budget": self.budget,
            "longest_context": self.longest,
            "contexts": [_plain(at) for at in self.at],
            "notes": list(self.notes),
        }


def estimate(
    model: str | ModelShape,
    contexts: Sequence[int] | None = None,
    *,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
    batch: int = 1,
    processor: str | Gpu | None = None,
    budget: int | None = None,
) -> Estimate:
    """The cost of a model, a preset or a shape, at these contexts; by default, usual lengths up to its own.

    Contexts longer than the model's training length are counted with a warning.

    >>> estimate("mistral-7b", [4096], processor="H100", budget=24 * 10**9).longest is None
    True
    """
    shape = preset(model) if isinstance(model, str) else model
    kept = cache_dtype or dtype
    machine = gpu(processor) if isinstance(processor, str) else processor
    lengths = sorted(set(contexts)) if contexts is not None else _usual(shape)
    if not lengths:
        raise RegardError("no contexts were given; wanted one or more lengths.")
    beyond = [n for n in lengths if shape.context is not None and n > shape.context]
    notes = shape.notes
    if beyond:
        lengths_beyond = ", ".join(map(str, beyond))
        notes += (f"{shape.name} was trained for {shape.context} tokens; beyond that: {lengths_beyond}",)
        warnings.warn(notes[-1], stacklevel=2)
    return Estimate(
        shape,
        parameters(shape),
        weight_bytes(shape, dtype),
        dtype,
        kept,
        batch,
        tuple(_at(shape, n, dtype, kept, batch, machine) for n in lengths),
        machine,
        budget,
        None
        if budget is None
        else longest_context(shape, budget, dtype=dtype, cache_dtype=kept, batch=batch),
        notes,
    )


def _usual(shape: ModelShape) -> list[int]:
    if shape.context is None:
        return list(USUAL[:-1])
    return sorted({n for n in USUAL if n <= shape.context} | {shape.context})


def _at(shape: ModelShape, n: int, dtype: str, kept: str, batch: int, machine: Gpu | None) -> AtContext:
    read = prefill(shape, n, dtype=dtype, batch=batch, cache_dtype=kept)
    step = decode(shape, n, dtype=dtype, batch=batch, cache_dtype=kept) if shape.decodes else None
    cache = {name: cache_bytes(shape, n, dtype=name, batch=batch) for name in BITS}
    return AtContext(
        n,
        read,
        step,
        _scores(shape, n, dtype),
        cache,
        weight_bytes(shape, dtype) + cache_bytes(shape, n, dtype=kept, batch=batch),
        tuple(layers_of(shape, n, dtype=kept, batch=batch)),
        roofline(read, machine) if machine else None,
        roofline(step, machine) if machine and step else None,
    )


def _scores(shape: ModelShape, n: int, dtype: str) -> Scores | None:
    """The scores of one head of the first layer that has any."""
    sizes = [layer.attention.head_dim for layer in shape.layers if layer.attention.attends]
    return scores(n, head_dim=sizes[0], dtype=dtype) if sizes else None


def _plain(at: AtContext) -> dict[str, Any]:
    def work(done: Work | None, time: Time | None) -> dict[str, Any] | None:
        if done is None:
            return None
        times = {"seconds": time.seconds, "bound": time.bound} if time else {}
        return {"flops": done.flops, "bytes": done.bytes, **asdict(done), **times}

    return {
        "context": at.context,
        "prefill": work(at.prefill, at.prefill_time),
        "decode": work(at.decode, at.decode_time),
        "scores_of_one_head": asdict(at.scores) if at.scores else None,
        "cache_bytes": at.cache,
        "weights_and_cache_bytes": at.memory,
        "layers": [asdict(layer) for layer in at.layers],
    }
