"""Kernels for Hopper alone, in Gluon: one warp feeds two warpgroups through the copy engine."""

from regard.engine.triton.hopper.support import ahead, applicable

__all__ = ["ahead", "applicable"]
