"""Kernels in C for the CPU: fold.c reads a map for statistics; attend.h computes attention with row
statistics.

`fold` and `attend` call them; `refusal`, `can_fold` and `can_attend` say when they cannot.
"""

from regard.engine.library import load
from regard.engine.native.attending import attend, can_attend
from regard.engine.native.availability import explain, refusal
from regard.engine.native.folding import can_fold, fold
from regard.engine.native.short import short_observed

__all__ = ["attend", "can_attend", "can_fold", "explain", "fold", "load", "refusal", "short_observed"]
