"""A rank that is lost in the middle of an exchange is an error for the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import checkout, started

SCRIPT = Path(__file__).with_name("lost.py")


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_a_rank_that_is_lost_while_exchanging_is_an_error_for_the_other(tmp_path, how):
    command = [sys.executable, str(SCRIPT)]
    options = {"env": checkout(), "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    more = (how, str(tmp_path / "meeting"))
    with started(*command, "0", *more, **options) as first, started(*command, "1", *more, **options):
        assert first.stdout is not None
        assert first.stdout.read().startswith("rank 0 lost another rank while exchanging tensors")
