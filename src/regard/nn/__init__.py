"""Modules: multi-head attention, a drop-in for PyTorch's, and the classic mechanisms."""

from regard.nn.classic import Bahdanau, Decomposable, Luong
from regard.nn.drop_in import DropInAttention, drop_in
from regard.nn.multi_head import MultiHeadAttention

__all__ = ["Bahdanau", "Decomposable", "DropInAttention", "Luong", "MultiHeadAttention", "drop_in"]
