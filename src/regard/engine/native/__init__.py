"""Kernels in C for the second pass on a CPU: fold.c says how, `fold` calls it, `refusal` says when not."""

from regard.engine.native.availability import explain, refusal
from regard.engine.native.folding import fold
from regard.engine.native.library import load

__all__ = ["explain", "fold", "load", "refusal"]
