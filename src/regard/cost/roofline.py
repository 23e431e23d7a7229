"""The least time that work can take on a processor."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.count import Work
from regard.cost.gpus import Gpu

__all__ = ["Time", "roofline"]


@dataclass(frozen=True)
class Time:
    """Seconds at best, for arithmetic and for memory; the longer of the two is the roofline."""

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The least it can take, if arithmetic and memory overlap wholly."""
        return max(self.compute, self.memory)

    @property
    def bound(self) -> str:
        """What holds it up."""
        return "compute" if self.compute >= self.memory else "memory"


def roofline(work: Work, processor: Gpu) -> Time:
    """The time of work on a processor at its best: a bound from below, which no kernel quite reaches.

    Arithmetic is taken to run at the bfloat16 rate whatever the weights are stored in.

    >>> from regard.cost import decode, gpu, preset
    >>> time = roofline(decode(preset("llama-7b"), 2048), gpu("H100"))
    >>> time.bound, round(time.seconds * 1000, 1)
    ('memory', 4.3)
    """
    return Time(work.flops / processor.flops, work.bytes / processor.bandwidth)
