"""Kernels in C for the CPU: fold.c reads a map for statistics, attend.h is attention with those of rows.

`fold` and `attend` call them; `refusal` and `can_attend` say when not.
"""

from regard.engine.native.attending import attend, can_attend
from regard.engine.native.availability import explain, refusal
from regard.engine.native.folding import fold
from regard.engine.native.library import load

__all__ = ["attend", "can_attend", "explain", "fold", "load", "refusal"]
