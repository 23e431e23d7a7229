"""Mutation check: break the code in one place, and see whether its tests notice.

`python -m mutating --help` says how to run it, docs/mutation.md what was found.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
