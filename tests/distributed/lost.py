"""Two ranks of which the second is lost after both have agreed to exchange: it ends, or it hangs."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from regard.distributed import Sharding, attention
from regard.distributed.exchange import Route
from regard.errors import DistributedError


def main(rank: int, how: str, meeting: str, pipe: Connection) -> None:
    """Send the error that this rank got, and end."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    x = torch.ones(1, 1, 3, 4)
    attention(x, x, x)
    if rank == 1:
        Route._launch = lambda *_: os._exit(0) if how == "ends" else time.sleep(1e6)  # type: ignore[method-assign]
    try:
        attention(x, x, x, sharding=Sharding.contiguous(6, 2), exchange="ring", timeout=2.0)
    except DistributedError as error:
        pipe.send_bytes(str(error).encode())
    os._exit(0)
