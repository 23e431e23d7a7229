"""Probes that find what is wrong with somebody's attention."""

from regard.doctor.diagnosis import Diagnosis
from regard.doctor.examine import examine
from regard.doctor.finding import Finding, Mistake, mistakes

__all__ = ["Diagnosis", "Finding", "Mistake", "examine", "mistakes"]
