"""One rank of the tests: started once, then given one case after another over a pipe."""

from __future__ import annotations

import importlib
import json
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist


def main(rank: int, size: int, meeting: str, pipe: Connection) -> None:
    """Join the other ranks, then run each case that arrives and send its answer, both as JSON."""

    def say(answer: dict[str, object]) -> None:
        pipe.send_bytes(json.dumps(answer).encode())

    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    groups = [dist.new_group(list(range(n))) for n in range(1, size + 1)]
    say({"ready": rank})
    while True:
        try:
            asked = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            torch.manual_seed(0)
            case = getattr(importlib.import_module(asked["module"]), asked["case"])
            group = groups[asked["ranks"] - 1] if rank < asked["ranks"] else None
            answer = None if group is None else case(group, **asked["given"])
            say({"answer": answer})
        except BaseException:
            say({"failed": traceback.format_exc()})
