"""Kernels for Hopper alone, in Gluon: one warp feeds two or three warpgroups through the copy engine."""

from regard.engine.triton.hopper.support import applicable, faster_than_vendor, finds_argmax

__all__ = ["applicable", "faster_than_vendor", "finds_argmax"]
