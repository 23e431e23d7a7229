"""A mask as small integer tables that kernels read."""
