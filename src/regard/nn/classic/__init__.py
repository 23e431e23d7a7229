"""Attention mechanisms before the Transformer: Bahdanau (2014), Luong (2015), decomposable (2016)."""

from regard.nn.classic.bahdanau import Bahdanau
from regard.nn.classic.decomposable import Decomposable, Inference
from regard.nn.classic.luong import Luong

__all__ = ["Bahdanau", "Decomposable", "Inference", "Luong"]
