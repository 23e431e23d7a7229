"""Kernels for Hopper alone, in Gluon: one warp feeds two or three warpgroups through the copy engine."""

from regard.engine.triton.hopper.support import ahead, applicable, tells_key

__all__ = ["ahead", "applicable", "tells_key"]
