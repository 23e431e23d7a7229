"""`python -m regard.corpus.engines.worker`: reads the shards named on its standard input, a line each.

The first line is the job; each line after it is the number of a shard. Answers are lines of JSON as well.
When standard input closes, because the parent is gone, the process exits at once.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from typing import Any, TextIO

__all__ = ["main"]


def main() -> None:
    """Load the model once, then read shards until there are no more."""
    # Ignore Ctrl-C, which the parent process handles.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Redirect standard output, because libraries may print to it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    job = json.loads(lines.get())
    from regard.corpus.job import Job
    from regard.errors import RegardError

    try:
        worker = Job.from_dict(job).worker()
    except RegardError as error:
        _say(answers, {"refused": str(error)})
        return
    _say(answers, {"ready": True})
    while True:
        shard = json.loads(lines.get())
        try:
            worker.work(
                shard, lambda documents, shard=shard: _say(answers, {"at": shard, "documents": documents})
            )
        except RegardError as error:
            _say(answers, {"refused": str(error)})
            return
        _say(answers, {"done": shard})


def _listen(lines: queue.Queue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    # The parent is gone.
    os._exit(0)


def _say(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
