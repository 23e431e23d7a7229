"""Records a model whose input sequence is sharded: ranks exchange keys, and each records its own rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from regard.distributed import ShardedObservation, Sharding, attention, observe
from regard.engine import attention as attention_here
from regard.errors import DistributedError
from regard.masks import And, Causal, Chunk, Mask, Window
from regard.models.call import AttentionCall
from regard.models.layer import Layer
from regard.models.segment import Segment
from regard.models.translate import Frame
from regard.stats import Statistic

__all__ = ["ShardedSequence"]


class ShardedSequence:
    """One sequence sharded over the ranks of a group, in one forward pass of a model.

    Rank r holds the tokens that follow those of rank r - 1; lengths may differ. Attention covers the whole
    sequence. The model gets position ids, unless its caller passes them.
    """

    def __init__(self, model: Any, group: ProcessGroup | None) -> None:
        self.group, self.model = group, model
        self.rank = dist.get_rank(group)
        self.sharding: Sharding | None = None
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    @contextmanager
    def entered(self) -> Iterator[ShardedSequence]:
        """Within the block, hook into the model."""
        hook = self.model.register_forward_pre_hook(self.enter, with_kwargs=True, prepend=True)
        try:
            yield self
        finally:
            hook.remove()

    def enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before a pass: exchange the number of tokens of each rank, and pass position ids to the model."""
        given = kwargs.get("input_ids", args[0] if args else kwargs.get("inputs_embeds"))
        past = kwargs.get("past_key_values")
        fault = None
        if given is None:
            fault = "the model was given neither input_ids nor inputs_embeds"
        elif kwargs.get("attention_mask") is not None:
            fault = "attention_mask= speaks of one rank's tokens; leave it out, and pad nothing"
        elif past is not None and past.get_seq_length():
            fault = "a cache was given; watch(mesh=...) records one pass over a text, not generate()"
        told: list[Any] = [None] * dist.get_world_size(self.group)
        own = {"fault": fault, "tokens": 0 if given is None else given.shape[1]}
        dist.all_gather_object(told, own, group=self.group)
        for rank, note in enumerate(told):
            if note["fault"] is not None:
                raise DistributedError(f"rank {rank}: {note['fault']}.")
        self.sharding = Sharding.of_lengths([note["tokens"] for note in told])
        if self._takes_positions and kwargs.get("position_ids") is None and given is not None:
            start = sum(note["tokens"] for note in told[: self.rank])
            positions = torch.arange(start, start + given.shape[1], device=given.device)
            kwargs = {**kwargs, "position_ids": positions[None]}
        return args, {**kwargs, "use_cache": False}

    def attend(self, call: AttentionCall) -> Tensor:
        """The output of a call that is not recorded."""
        if self.sharding is None:
            return attention_here(call.q, call.k, call.v, **call.options)
        return attention(call.q, call.k, call.v, self._mask(call), **self._options(call))

    def observe(self, call: AttentionCall, stats: Sequence[Statistic]) -> ShardedObservation:
        """Observe a call: its output, and the statistics of this rank's rows and keys."""
        return observe(call.q, call.k, call.v, self._mask(call), stats=stats, **self._options(call))

    def fill(self, layer: Layer, call: AttentionCall, seen: ShardedObservation, keep: bool) -> None:
        """Put this rank's rows into a layer; its mask is that of the whole sequence."""
        layer.frame = Frame(call.q.shape[2], call.k.shape[2])
        layer.mask = layer.first_mask = self._mask(call)
        layer.options = {"softcap": call.softcap, "sink": call.sink}
        layer.options["scale"] = call.q.shape[-1] ** -0.5 if call.scale is None else call.scale
        kept = {name: getattr(call, name).detach() for name in ("q", "k", "v")} if keep else {}
        layer.segments = [Segment(seen.lse.detach(), seen.stats, **kept)]

    def _options(self, call: AttentionCall) -> dict[str, Any]:
        names = ("scale", "softcap", "sink")
        options = {name: getattr(call, name) for name in names}
        return {**options, "group": self.group, "sharding": self.sharding}

    def _mask(self, call: AttentionCall) -> Mask | None:
        """The mask of the whole sequence, derived from the model's mask for this rank's part."""
        if call.bias is not None:
            raise DistributedError(
                "this model adds a bias that it makes from one rank's positions (ALiBi, T5), so it cannot be "
                "cut along the sequence. Record it in one process."
            )
        mask = call.mask
        if call.plan is not None and self.sharding is not None:
            n = sum(self.sharding.sizes)
            mask = call.plan.over(Frame(n, n))
        for part in mask.parts if isinstance(mask, And) else (mask,):
            if part is not None and not isinstance(part, Causal | Window | Chunk):
                raise DistributedError(
                    f"the model's mask has {part!r}, which speaks of one rank's tokens; causal masks, "
                    "windows and chunks can be cut along the sequence. Record it in one process."
                )
        return mask
