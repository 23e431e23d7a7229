"""A long-running search for wrong answers: random inputs, each judged by a slow and obvious oracle.

`python -m fuzzing --minutes 30` runs it; `tests/fuzzing` runs a slice. Oracles are shared with the tests.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
for folder in ("tests", "src"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))
