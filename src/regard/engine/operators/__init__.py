"""Attention as PyTorch operators, for compilers, exporters and fake tensors."""
