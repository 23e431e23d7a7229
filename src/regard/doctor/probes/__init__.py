"""The probes, one file per family of mistakes."""

from regard.doctor.probes.cache import cache
from regard.doctor.probes.dead_rows import dead_rows
from regard.doctor.probes.finite_mask import finite_mask
from regard.doctor.probes.formula import formula
from regard.doctor.probes.gradients import gradients
from regard.doctor.probes.memory import memory
from regard.doctor.probes.order import order
from regard.doctor.probes.padding import padding
from regard.doctor.probes.precision import precision
from regard.doctor.probes.repeatable import repeatable
from regard.doctor.probes.sane import finite, sane

__all__ = [
    "cache",
    "dead_rows",
    "finite",
    "finite_mask",
    "formula",
    "gradients",
    "memory",
    "order",
    "padding",
    "precision",
    "repeatable",
    "sane",
]
