"""Kernels for Hopper only, in Gluon: one warp loads tiles by TMA for two or three warpgroups that compute."""

from regard.engine.triton.hopper.support import applicable, faster_than_vendor, finds_argmax

__all__ = ["applicable", "faster_than_vendor", "finds_argmax"]
