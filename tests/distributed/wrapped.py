"""Cases about models whose weights data parallelism spreads; they run in the ranks."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import regard
from distributed.faults import raised
from distributed.recordings import model


def in_ddp(group: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model(), process_group=group)


def in_fsdp(group: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FullyShardedDataParallel(model(), group, device_id=torch.device("cpu"), **options)


def layers_in_fsdp(group: Any) -> Any:
    return in_fsdp(group, auto_wrap_policy=ModuleWrapPolicy({LlamaDecoderLayer}))


def with_own_parameters(group: Any) -> Any:
    return in_fsdp(group, use_orig_params=True)


def sharded(group: Any) -> Any:
    whole, spread = model(), DeviceMesh.from_group(group, "cpu")
    for layer in whole.model.layers:
        fully_shard(layer, mesh=spread)
    return fully_shard(whole, mesh=spread)


@torch.no_grad()
def exact(group: Any, make: str) -> None:
    """Each rank records its own text as the model alone does, and the recording is of the same model."""
    rank = dist.get_rank(group)
    ids, alone, spread = torch.arange(3 + rank, 30 + rank)[None], model(), globals()[make](group)
    with regard.watch(alone) as expected:
        logits = alone(ids).logits
    with regard.watch(spread) as recording:
        assert torch.equal(spread(ids).logits, logits)
    recorded = regard.record(spread, ids)
    for layer in (0, 1):
        assert torch.equal(recording.maps[layer].dense(), expected.maps[layer].dense())
        assert torch.equal(recorded.maps[layer].dense(), expected.maps[layer].dense())
    assert recording.model == expected.model
    recording.check_model(alone)


@torch.no_grad()
def inner(group: Any) -> str:
    """What is said to one who gives the model that FSDP wraps; the wrapped one still runs."""
    spread, ids = layers_in_fsdp(group), torch.arange(3, 30)[None]

    def watch() -> None:
        with regard.watch(spread.module):
            raise AssertionError("the weights cannot be read")

    said = raised(watch)
    assert torch.equal(spread(ids).logits, model()(ids).logits)
    return said
