"""The commands of the `regard` program, one file each; importing one adds it to the program."""

from regard.commands.advise import advise
from regard.commands.app import app
from regard.commands.atlas import atlas
from regard.commands.check import check
from regard.commands.claims import claims
from regard.commands.compare import compare
from regard.commands.corpus import corpus
from regard.commands.cost import cost
from regard.commands.doctor import doctor
from regard.commands.evict import evict
from regard.commands.exercise import exercise
from regard.commands.explain import explain
from regard.commands.info import info
from regard.commands.knockout import knockout
from regard.commands.mcp import mcp
from regard.commands.needle import needle
from regard.commands.plot import plot
from regard.commands.record import record
from regard.commands.report import report
from regard.commands.view import view

__all__ = [
    "advise",
    "app",
    "atlas",
    "check",
    "claims",
    "compare",
    "corpus",
    "cost",
    "doctor",
    "evict",
    "exercise",
    "explain",
    "info",
    "knockout",
    "mcp",
    "needle",
    "plot",
    "record",
    "report",
    "view",
]
