"""Checks half precision and large scores."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case, larger
from regard.doctor.influence import difference
from regard.doctor.probes.finite_mask import HUGE
from regard.doctor.watch import light

__all__ = ["precision"]

KEYS = 4096
# Four units in the last place of float16 at 1; rounding once or twice stays below this.
TOLERANCE = 4e-3


def precision(case: Case) -> None:
    """Average 4,096 ones in half precision, and take softmax of scores near 1e5."""
    subject = case.subject
    out = subject.run(larger(subject.sample(), HUGE)) if isinstance(subject, FunctionSubject) else None
    if out is not None and not bool(out[:, 1:].isfinite().all()):
        bad = int((~out.isfinite()).sum())
        case.find(
            "softmax-overflow", f"with scores near 1e5, {bad} of {out.numel()} outputs are NaN or infinite"
        )
        return
    if not isinstance(subject, FunctionSubject) or subject.numpy:
        return
    q = torch.zeros(1, 1, 2, subject.width, dtype=torch.float16)
    k = torch.randn(1, 1, KEYS, subject.width, generator=torch.Generator().manual_seed(0)).half()
    try:
        out = subject.call(q, k, torch.ones_like(k))
    except Exception:
        return
    if out.shape == q.shape and out.dtype == torch.float16:
        error = difference(out, subject.call(q.float(), k.float(), torch.ones_like(k).float()))
        if error > TOLERANCE and _by_pairs(case):
            case.note(
                "it computes pair by pair in Python: a form to read, whose sums are not for half precision"
            )
        elif error > TOLERANCE:
            case.find(
                "half-accumulation",
                f"over {KEYS} equal values the output in float16 misses that in float32 by {error:.1%}",
            )


class _Count(TorchDispatchMode):
    """Counts operations."""

    made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made += 1
        return func(*args, **(kwargs or {}))


light(_Count)


def _by_pairs(case: Case) -> bool:
    """Whether the number of operations grows with the square of the length."""
    counts = []
    for n in (8, 16):
        with _Count() as seen:
            case.subject.run(case.subject.sample(n))
        counts.append(seen.made)
    return counts[1] > 3 * counts[0]
