"""In which order a thread adds up its columns: another one would make other distances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton.experimental.gluon")
ROOT = Path(__file__).parents[3]


def test_sums_of_sums_count_every_weight_by_its_distance():
    """A thread has 16 pairs of columns, eight apart, of two rows. No device is needed to read that from what
    the compiler makes of it; releases of Triton have taken other orders."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), environment.get("PYTHONPATH", "")])
    script = Path(__file__).with_name("adding.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    sums = json.loads(done.stdout.splitlines()[-1])
    # Of a pair the second column is nearer to the end of the tile by one.
    distances = sorted(8 * pair - second for pair in range(1, 17) for second in (0, 1))
    assert sorted(sums) == sorted([[1] * 32] * 2 + [distances] * 2)
