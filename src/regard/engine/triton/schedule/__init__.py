"""Masks as small integer tables that kernels read."""
