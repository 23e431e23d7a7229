"""One rank of the tests: started once, then given one case after another on its standard input."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist


def main(rank: int, size: int, meeting: str) -> None:
    """Join the others, then run what is asked for and say how it went, one line of JSON each."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    groups = [dist.new_group(list(range(n))) for n in range(1, size + 1)]
    say({"ready": rank})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            torch.manual_seed(0)
            case = getattr(importlib.import_module(asked["module"]), asked["case"])
            group = groups[asked["ranks"] - 1] if rank < asked["ranks"] else None
            answer = None if group is None else case(group, **asked["given"])
            say({"answer": answer})
        except BaseException:
            say({"failed": traceback.format_exc()})


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
