"""The roofline: a lower bound for the time of work on a processor."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.count import Work
from regard.cost.gpus import Gpu

__all__ = ["Time", "roofline"]


@dataclass(frozen=True)
class Time:
    """Lower bounds in seconds for arithmetic and for memory; the longer of the two is the roofline."""

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The lower bound, if arithmetic and memory overlap completely."""
        return max(self.compute, self.memory)

    @property
    def bound(self) -> str:
        """The bottleneck: "compute" or "memory"."""
        return "compute" if self.compute >= self.memory else "memory"


def roofline(work: Work, processor: Gpu) -> Time:
    """The lower bound for the time of work on a processor; real kernels take longer.

    Arithmetic is assumed to run at the bfloat16 rate, for any dtype of the weights.

    >>> from regard.cost import decode, gpu, preset
    >>> time = roofline(decode(preset("llama-7b"), 2048), gpu("H100"))
    >>> time.bound, round(time.seconds * 1000, 1)
    ('memory', 4.3)
    """
    return Time(work.flops / processor.flops, work.bytes / processor.bandwidth)
