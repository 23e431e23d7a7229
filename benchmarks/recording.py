"""A long recording of the bundled model: how long writing takes, its size, and how soon one can look at it.

python benchmarks/recording.py [--n 32768]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import header

from regard.models import Recording, bundled, progress, record, sample_text
from regard.models.sizes import spoken

REPEATS = 5


OPEN = """
import sys, time
import torch
start = time.perf_counter()
from regard.models import Recording
imported = time.perf_counter()
recording = Recording.open(sys.argv[1])
n = len(recording.tokens)
ready = time.perf_counter()
recording.maps[7][0, 3, n - 1 : n, :]
print(imported - start, ready - imported, time.perf_counter() - ready)
"""


def opened(path: Path) -> tuple[float, ...]:
    """Seconds to import, to open with all tokens, and to look at one row of one head, its file checked."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=True)
    return tuple(float(number) for number in done.stdout.split())


def written(path: Path, n: int) -> tuple[float, Recording]:
    """Record a text of n tokens, in windows where that is longer than the model's context."""
    model, tokenizer = bundled()
    ids = tokenizer(sample_text() * (n // 2000 + 1))["input_ids"][:n]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    start = time.perf_counter()
    with progress("recording") as tell:
        recording = record((model, tokenizer), text, store=path, too_long="windows", progress=tell)
    return time.perf_counter() - start, recording


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=32768)
    args = parser.parse_args()
    header(
        "A long recording of the bundled model", f"written once; opened in {REPEATS} new processes, medians"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.regard"
        seconds, recording = written(path, args.n)
        runs = [opened(path) for _ in range(REPEATS)]
        imported, ready, row = (statistics.median(times) for times in zip(*runs, strict=True))
    size = spoken(recording.nbytes)
    print("| what | |\n| --- | ---: |")
    print(f"| record to disk, row statistics | {seconds:.1f} s |")
    print(f"| size of {args.n} tokens, {len(recording.layers)} layers | {size} |")
    print(f"| `import regard.models` after torch, in a new process | {imported:.2f} s |")
    print(f"| open, tokens read | {1e3 * ready:.0f} ms |")
    print(f"| one row of one head of the last layer, its file checked | {1e3 * row:.0f} ms |")


if __name__ == "__main__":
    main()
