"""Attention as operators of PyTorch's, for what traces a program: compilers, exporters, fake tensors."""
