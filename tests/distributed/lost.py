"""Two ranks of which the second is lost after both have agreed to exchange: it ends, or it hangs."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from regard.distributed import Sharding, attention
from regard.distributed.exchange import Route
from regard.errors import DistributedError


def main(rank: int, how: str, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.ones(1, 1, 3, 4)
    attention(x, x, x)
    if rank == 1:
        Route._launch = lambda *_: os._exit(0) if how == "ends" else sys.stdin.read()  # type: ignore[method-assign]
    try:
        attention(x, x, x, sharding=Sharding.contiguous(6, 2), exchange="ring", timeout=2.0)
    except DistributedError as error:
        print(error, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
