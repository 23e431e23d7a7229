"""Memory that runs out in the middle of a pass: an exception, and afterwards the same bits as before.

`faults` makes every tensor operation of a call fail in turn, as an allocator does. `limits` does it for
real: the process may have so much address space and no more (RLIMIT_AS), and the limit rises from nothing
to enough.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard import Causal, ColumnMass, Entropy, TopK, Window, attention, observe
from soak.samples import digest

__all__ = ["CALLS", "faults", "limits", "memory"]


def _inputs(n: int, dim: int = 16) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(n)
    return tuple(torch.randn(1, 2, n, dim, generator=generator, requires_grad=True) for _ in range(3))


def _gradients(n: int) -> str:
    q, k, v = _inputs(n)
    out = attention(q, k, v, mask=Causal() & Window(40), backend="torch")
    return digest(out, *torch.autograd.grad(out.square().sum(), (q, k, v)))


def _statistics(n: int) -> str:
    seen = observe(*_inputs(n), mask=Causal(), stats=[Entropy(), ColumnMass(), TopK(4)])
    return digest(seen.out, seen.entropy, seen.column_mass, *seen.top_k)


def _map(n: int) -> str:
    q, k, v = _inputs(n)
    seen = observe(q, k, v, mask=Causal() & Window(65), stats=[])
    return digest(seen.map[0, 1], seen.map[:, :, 3:9])


CALLS: dict[str, Callable[[int], str]] = {"gradients": _gradients, "statistics": _statistics, "map": _map}


class _Failing(TorchDispatchMode):
    """Counts operations; the n-th finds no memory."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails, self.seen = fails, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        if self.seen == self.fails:
            raise MemoryError(f"operation {self.seen}: {func}")
        return func(*args, **(kwargs or {}))


def memory(count: int) -> dict[str, int]:
    """Every operation fails once; then so many limits for each call, on Linux."""
    found = faults()
    return {**limits(count), **found} if sys.platform == "linux" else found


def faults(every: int = 1, n: int = 65) -> dict[str, int]:
    """Let operation 1, 1 + every, … of each call fail; afterwards the call gives the bits it gave before."""
    found: Counter[str] = Counter()
    for name, call in CALLS.items():
        wanted = call(n)
        with _Failing(0) as mode:
            call(n)
        for number in range(1, mode.seen + 1, every):
            try:
                with _Failing(number):
                    got = call(n)
            except MemoryError:
                found["operations made to fail"] += 1
            else:
                found["calls that gave the right bits all the same"] += 1
                _check(got == wanted, f"{name} gave other bits when operation {number} failed")
            _check(call(n) == wanted, f"{name} gives other bits since operation {number} failed")
    return {**found, "other bits": 0}


def limits(count: int, n: int = 2049, most: int = 256 << 20) -> dict[str, int]:
    """Run each call with ever more address space beyond what this process has: it ends well, or raises."""
    import resource

    found: Counter[str] = Counter()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    for name, call in CALLS.items():
        wanted = call(n)
        for step in range(count):
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + most * step // count, hard))
            try:
                got = call(n)
                found["calls that had enough memory"] += 1
            except (MemoryError, RuntimeError):
                got = wanted
                found["calls that ran out of memory"] += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            _check(got == wanted, f"{name} gave other bits with little memory")
            _check(call(n) == wanted, f"{name} gives other bits since memory ran out")
    return {**found, "other bits": 0}


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
