"""Scores of pairs: score functions, biases, soft cap and rotary positions."""

from regard.scores.additive import Additive, Concat
from regard.scores.base import DotProduct, Score
from regard.scores.bias import ALiBi, Bias, RelativeBias
from regard.scores.diagonals import diagonal_sums
from regard.scores.general import General
from regard.scores.positions import Interleaved, NoPosition, Position, QueryTemperature
from regard.scores.rope_scaling import NTK, DynamicNTK, Linear, Llama3, RopeScaling, YaRN
from regard.scores.rotary import Rotary
from regard.scores.softcap import soft_cap

__all__ = [
    "NTK",
    "ALiBi",
    "Additive",
    "Bias",
    "Concat",
    "DotProduct",
    "DynamicNTK",
    "General",
    "Interleaved",
    "Linear",
    "Llama3",
    "NoPosition",
    "Position",
    "QueryTemperature",
    "RelativeBias",
    "RopeScaling",
    "Rotary",
    "Score",
    "YaRN",
    "diagonal_sums",
    "soft_cap",
]
