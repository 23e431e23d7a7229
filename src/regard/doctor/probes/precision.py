"""Half precision and large scores."""

from __future__ import annotations

import torch

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case, larger
from regard.doctor.influence import difference
from regard.doctor.probes.finite_mask import HUGE

__all__ = ["precision"]

KEYS = 4096
# Four units in the last place of float16 at 1: rounding once or twice stays below.
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
        if error > TOLERANCE:
            case.find(
                "half-accumulation",
                f"over {KEYS} equal values the output in float16 misses that in float32 by {error:.1%}",
            )
