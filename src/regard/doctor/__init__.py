"""Probes that find mistakes in an attention implementation."""

from typing import TYPE_CHECKING

from regard.doctor.diagnosis import Diagnosis
from regard.doctor.finding import Finding, Mistake, mistakes

if TYPE_CHECKING:
    from regard.doctor.examination import examine

__all__ = ["Diagnosis", "Finding", "Mistake", "examine", "mistakes"]


def __getattr__(name: str):
    # The command line reads a diagnosis from a subprocess, and only the subprocess needs PyTorch.
    if name == "examine":
        from regard.doctor.examination import examine

        # Cache the attribute for the next access.
        globals()[name] = examine
        return examine
    raise AttributeError(f"module 'regard.doctor' has no attribute {name!r}")
