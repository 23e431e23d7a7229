"""Draws ranks.png: how far each strategy of context parallelism scales, as the planner predicts it.

python docs/images/ranks.py
"""

from __future__ import annotations

from pathlib import Path

from regard.cost import gpu, preset, sweep_ranks
from regard.cost.parallel_report import sweep_figure

if __name__ == "__main__":
    shape = preset("llama-3.1-8b")
    sweep = sweep_ranks(shape, 2**20, gpu("H200"))
    sweep_figure(sweep, f"{shape.name} on H200").savefig(Path(__file__).with_name("ranks.png"), dpi=110)
