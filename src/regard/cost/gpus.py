"""Peak FLOP/s and bandwidth of processors, from data sheets or measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from regard.errors import DeviceError

__all__ = ["GPUS", "Gpu", "gpu", "this_machine"]


@dataclass(frozen=True)
class Gpu:
    """A processor: FLOP/s of dense bfloat16 matrix products, bytes/s of its memory, bytes of it.

    >>> gpu("H200").bandwidth
    4800000000000.0
    """

    name: str
    flops: float
    bandwidth: float
    memory: int | None = None


def _sheet(name: str, teraflops: float, gigabytes_per_second: float, gigabytes: int) -> Gpu:
    return Gpu(name, teraflops * 1e12, gigabytes_per_second * 1e9, gigabytes * 10**9)


# Dense, without the factor of two that sheets claim for structured sparsity; with float32 accumulation.
GPUS = {
    made.name: made
    for made in (
        # NVIDIA A100 Tensor Core GPU datasheet.
        _sheet("A100-40GB", 312, 1555, 40),
        _sheet("A100-80GB", 312, 2039, 80),
        # NVIDIA H100 Tensor Core GPU datasheet: SXM5 and PCIe.
        _sheet("H100", 989.4, 3350, 80),
        _sheet("H100-PCIe", 756, 2000, 80),
        # NVIDIA H200 Tensor Core GPU datasheet, SXM.
        _sheet("H200", 989.4, 4800, 141),
        # NVIDIA DGX B200 datasheet, an eighth of it.
        _sheet("B200", 2250, 8000, 180),
        # NVIDIA L4 and L40S datasheets.
        _sheet("L4", 121, 300, 24),
        _sheet("L40S", 362, 864, 48),
        # NVIDIA A10 datasheet.
        _sheet("A10", 125, 600, 24),
        # NVIDIA Ada GPU Architecture whitepaper, appendix A; NVIDIA Ampere GA102 whitepaper.
        _sheet("RTX-4090", 165.2, 1008, 24),
        _sheet("RTX-3090", 71, 936, 24),
        # AMD Instinct MI300X data sheet.
        _sheet("MI300X", 1307.4, 5300, 192),
    )
}
OTHER_NAMES = {
    "a100": "A100-80GB",
    "4090": "RTX-4090",
    "3090": "RTX-3090",
    "h100-sxm": "H100",
    "h200-sxm": "H200",
}
HERE = "here"


def gpu(name: str) -> Gpu:
    """A processor by name; "here" measures this machine.

    >>> gpu("rtx 4090").name
    'RTX-4090'
    """
    key = name.strip().lower().replace(" ", "-").replace("_", "-").removeprefix("nvidia-")
    if key == HERE:
        return this_machine()
    by_key = {known.lower(): known for known in GPUS} | OTHER_NAMES
    if key not in by_key:
        near = get_close_matches(key, by_key, n=1)
        hint = f" Did you mean {by_key[near[0]]}?" if near else ""
        raise DeviceError(
            f"there is no GPU {name!r} in the table; it has {', '.join(GPUS)}, and {HERE}.{hint}"
        )
    return GPUS[by_key[key]]


def this_machine(seconds: float = 0.3) -> Gpu:
    """Measure this machine: a bfloat16 matrix product and a copy, each for at least `seconds`.

    The result is below a data sheet's peak, and other work on the machine lowers it.

    >>> found = this_machine(0.01)
    >>> found.flops > 1e6 and found.bandwidth > 1e6
    True
    """
    import torch

    cuda = torch.cuda.is_available()
    device, side, numbers = ("cuda", 8192, 1 << 28) if cuda else ("cpu", 512, 1 << 23)
    # A processor that emulates bfloat16 is faster in float32, so measure that too.
    dtypes = (torch.bfloat16,) if cuda else (torch.bfloat16, torch.float32)
    wait = torch.cuda.synchronize if cuda else lambda: None
    best = 0.0
    for dtype in dtypes:
        a = torch.ones(side, side, device=device, dtype=dtype)
        out = torch.empty_like(a)
        best = max(best, 2 * side**3 / _fastest(lambda a=a, out=out: torch.mm(a, a, out=out), wait, seconds))
    source = torch.ones(numbers, device=device, dtype=torch.float32)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / _fastest(lambda: target.copy_(source), wait, seconds)
    name = torch.cuda.get_device_name() if cuda else "this CPU"
    memory = torch.cuda.get_device_properties(0).total_memory if cuda else None
    return Gpu(f"{name}, measured", best, copied, memory)


def _fastest(call: Callable[[], object], wait: Callable[[], object], seconds: float) -> float:
    """The shortest time of one call; other work on the machine can only lengthen it."""
    best, stop = float("inf"), time.perf_counter() + seconds
    call()
    while True:
        wait()
        start = time.perf_counter()
        call()
        wait()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > stop:
            return best
