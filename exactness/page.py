"""docs/exactness.md, made of exactness/results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exactness.measure import BACKENDS, DTYPES, FACTOR, FLOOR, GRADIENT_FLOOR, Cell

__all__ = ["PAGE", "RESULTS", "page", "read", "write"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "exactness.md"
RESULTS = Path(__file__).with_name("results.json")
COLUMNS = [name for backends in BACKENDS.values() for name in backends]

HEAD = f"""\
# How exact

Every number here is measured: `python -m exactness` makes this page, on a GPU `python -m exactness --device
cuda` adds the column of its kernels.

**What is promised.** For any finite input the error of what regard computes, against float64, is at most
{FACTOR:g} times that of eager PyTorch code in the same dtype, plus a floor:

| | floor |
| --- | --- |
| output, map and statistics on the CPU (`torch`, `sdpa`, `native`) | {FLOOR:g} |
| gradients on the CPU | {GRADIENT_FLOOR:g} |
| output, map and statistics on a GPU (`triton`) | {FLOOR:g} + 2⁻²³ · *S* |
| gradients on a GPU | {GRADIENT_FLOOR:g} + 2⁻²³ · *S* |

*S* is the largest score of the call, without its sign. On the CPU rows of large scores are read in float64.
The GPU kernels compute scores in float32, where a score and the log-sum-exp of its row are each rounded by up
to 2⁻²⁴ of their size, so large scores cost digits: at *S* = 1,500 the floor is 1.9e-4. For more digits pass
`backend="torch"`, which reads such rows in float64 on a GPU as well. A backward pass in tiles takes the sum
Σ P·dP of a row from its rounded output; where one key has nearly all of the weight, that costs gradients
digits which eager code keeps.

Eager code holds the whole matrix: it multiplies, takes the softmax and multiplies again in the dtype of its
inputs, and sums statistics of half-precision weights in float32.

**What is measured.** Causal attention on inputs as models make them and as they go wrong
([`benchmarks/families.py`](../benchmarks/families.py)): random; local by rotary positions; with a first key
that draws a score of 5 to 40; with stripes; repeated; with equal keys and with keys that differ in the last
bit; with outliers; with scores of 1,500; with one key 180 bits above all others. The truth is the formula
in float64 on the same rounded inputs. An error is the largest difference in a tensor, as a share of the
tensor's largest value where that is above 1. Of each quantity, backend and dtype a cell shows the case that
comes nearest to the promise: *our error / eager's error*. Where it is above what is promised it is
**bold**.
"""
TAIL = """\
In float64 the truth is eager's own result, so eager's error is 0 and ours is what two orders of summation
differ by.

Statistics that count what lies above a threshold (`Histogram`, `ReceptiveWindow`, `SinkRate`) are left out:
next to the threshold the last bit of a weight decides, in eager code as here. `Custom` is the user's own.
The output and the gradients of `native` are those of the backend that `auto` chooses on the CPU; maps and
statistics are by its kernels.
"""


def read(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What was measured, by device."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path: Path, results: dict[str, dict[str, Any]]) -> None:
    """Keep what was measured."""
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page as text."""
    cells = [Cell(**cell) for device in results.values() for cell in device["cells"]]
    parts = [HEAD, _broken(cells)]
    for dtype in DTYPES:
        found = [cell for cell in cells if cell.dtype == dtype]
        if found:
            parts.append(f"## {dtype}\n\n{_table(found)}\n")
    return "\n".join([*parts, "## Left out, and where it was measured\n", TAIL, _circumstances(results)])


def _broken(cells: list[Cell]) -> str:
    broken = [cell for cell in cells if cell.share > 1]
    if not broken:
        return f"**All {len(cells)} cells below are within the promise.**\n"
    lines = [f"**{len(broken)} of the {len(cells)} cells below break the promise:**\n"]
    for cell in sorted(broken, key=lambda cell: -cell.share):
        lines.append(
            f"- {cell.quantity}, {cell.dtype}, {cell.backend}: {cell.error:.1e}, eager {cell.eager:.1e} "
            f"({cell.family})"
        )
    return "\n".join([*lines, ""])


def _table(cells: list[Cell]) -> str:
    quantities = dict.fromkeys(cell.quantity for cell in cells)
    lines = [f"| | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for quantity in quantities:
        row = {cell.backend: _shown(cell) for cell in cells if cell.quantity == quantity}
        lines.append(f"| {quantity} | {' | '.join(row.get(name, '') for name in COLUMNS)} |")
    return "\n".join(lines)


def _shown(cell: Cell) -> str:
    errors = f"{_short(cell.error)} / {_short(cell.eager)}"
    return f"**{errors}**" if cell.share > 1 else errors


def _short(error: float) -> str:
    return "0" if error == 0 else f"{error:.1e}".replace("e-0", "e-")


def _circumstances(results: dict[str, dict[str, Any]]) -> str:
    lines = ["| device | date | commit | command |", "| --- | --- | --- | --- |"]
    for device in results.values():
        lines.append(
            f"| {device['machine']} | {device['date']} | {device['commit']} | `{device['command']}` |"
        )
    notes = [f"\n{device['note']}" for device in results.values() if "note" in device]
    return "\n".join([*lines, *notes, ""])
