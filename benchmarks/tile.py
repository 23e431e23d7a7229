"""Read a tile of the map of a million tokens, from queries and keys that lie on disk.

python benchmarks/tile.py [--tokens N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from side_by_side import header

from regard import AttentionMap, Causal

DIM, TILE = 64, 256


def on_disk(folder: str, name: str, n: int) -> torch.Tensor:
    """Random rows, written in pieces and mapped back: never all in memory at once."""
    path = Path(folder) / name
    with path.open("wb") as file:
        for start in range(0, n, 100_000):
            rows = np.random.default_rng(start).standard_normal((min(100_000, n - start), DIM), np.float32)
            rows.tofile(file)
    return torch.from_file(str(path), shared=False, size=n * DIM).view(1, 1, n, DIM)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1_000_000)
    n = parser.parse_args().tokens
    header(f"Tiles of {TILE} x {TILE} cells of a {n:,} x {n:,} map, one causal head, d = {DIM}")
    with tempfile.TemporaryDirectory() as folder:
        lazy = AttentionMap.of(on_disk(folder, "q", n), on_disk(folder, "k", n), mask=Causal())
        rows, cols = range(n // 2, n // 2 + TILE), range(n // 3, n // 3 + TILE)
        first = timed(lambda: lazy[0, 0, rows, cols])
        again = statistics.median(timed(lambda: lazy[0, 0, rows, cols]) for _ in range(20))
        row = timed(lambda: lazy.row(0, 0, n - 1))
    print("| what | ms |\n| --- | ---: |")
    print(f"| a tile, log-sum-exp of its {TILE} rows computed on the way | {first:.1f} |")
    print(f"| a tile, log-sum-exp known | {again:.2f} |")
    print(f"| one whole row, the last, log-sum-exp computed on the way | {row:.1f} |")


if __name__ == "__main__":
    main()
