"""Cases in which something is wrong; each returns what was raised."""

from __future__ import annotations

import torch
import torch.distributed as dist

import regard
from distributed.catalogue import BATCH, DIM, HEADS, LENGTH, random
from regard.distributed import Sharding, attention, unshard
from regard.masks import Causal, Documents, Window


def mine(group, length: int = LENGTH, **changed) -> list[torch.Tensor]:
    held = Sharding.contiguous(length, dist.get_world_size(group)).sizes[dist.get_rank(group)]
    return [random(BATCH, HEADS, held, DIM, seed=i) for i in range(3)]


def raised(call) -> str:
    """The message of what a call raised."""
    try:
        call()
    except regard.errors.RegardError as error:
        return str(error)
    return "nothing was raised"


def differs(group, what: str) -> str:
    """The last rank says something else."""
    last = dist.get_rank(group) == dist.get_world_size(group) - 1
    q, k, v = mine(group)
    options: dict = {"sharding": Sharding.contiguous(LENGTH, dist.get_world_size(group)), "mask": Causal()}
    if last and what == "mask":
        options["mask"] = Causal() & Window(3)
    if last and what == "mask content":
        options["mask"] = Documents(lengths=[1, LENGTH - 1])
    elif what == "mask content":
        options["mask"] = Documents(lengths=[2, LENGTH - 2])
    if last and what == "dtype":
        q, k, v = q.float(), k.float(), v.float()
    if last and what == "mixed dtypes":
        k = k.float()
    if last and what == "heads":
        q, k, v = (x[:, :2] for x in (q, k, v))
    if last and what == "length":
        q, k, v = (x[:, :, 1:] for x in (q, k, v))
    if last and what == "scale":
        options["scale"] = 0.3
    if last and what == "sharding":
        options["sharding"] = Sharding.head_tail(LENGTH, dist.get_world_size(group))
    if last and what == "gradient":
        q.requires_grad_()
    if last and what == "call":
        return raised(lambda: unshard(q, options["sharding"], group=group, timeout=20.0))
    return raised(lambda: attention(q, k, v, group=group, timeout=20.0, **options))


def refused(group, what: str) -> str:
    """Every rank says the same, and it is wrong."""
    q, k, v = mine(group)
    options: dict = {"sharding": Sharding.contiguous(LENGTH, dist.get_world_size(group))}
    if what == "no lengths":
        options = {}
    if what == "short":
        q, k, v = (x[:, :, :0] for x in (q, k, v))
        options = {}
    if what == "exchange":
        options["exchange"] = "pigeon"
    if what == "heads":
        q, k, v = q, k[:, :1], v[:, :1]
        options["exchange"] = "heads"
    if what == "bool":
        options["mask"] = torch.ones(3, 3, dtype=torch.bool)
    if what == "bias":
        options["bias"] = torch.zeros(7, 7)
    if what == "other mask":
        options["mask"] = Documents(lengths=[3])
    return raised(lambda: attention(q, k, v, group=group, timeout=20.0, **options))


def missing(group, late: int) -> str:
    """One rank never calls."""
    if dist.get_rank(group) == late:
        return "absent"
    q, k, v = mine(group)
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    return raised(lambda: attention(q, k, v, sharding=held, group=group, timeout=5.0))


def forgets_to_go_back(group) -> str:
    """One rank leaves the backward pass out: those who wait for it stop waiting."""
    held = Sharding.contiguous(LENGTH, dist.get_world_size(group))
    q, k, v = (x.requires_grad_() for x in mine(group))
    out = attention(q, k, v, sharding=held, group=group, timeout=5.0)
    if dist.get_rank(group) == 1:
        return "absent"
    return raised(lambda: out.sum().backward())


def catches_up(group, late: int) -> None:
    """The rank that left a call out counts it after all, as the others did."""
    from regard.distributed.ranks import CALLS

    if dist.get_rank(group) == late:
        CALLS[group.group_name][0] += 1
    dist.barrier(group=group)
