"""Checks the printed numbers of attention examples against each other."""

from regard.checking.check import check
from regard.checking.numeral import Numeral, numeral
from regard.checking.report import Report
from regard.checking.verdict import Cell, CheckedExample, CheckedStep, Verdict

__all__ = ["Cell", "CheckedExample", "CheckedStep", "Numeral", "Report", "Verdict", "check", "numeral"]
