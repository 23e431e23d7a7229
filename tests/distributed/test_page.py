"""The program on the page runs under torchrun."""

from __future__ import annotations

import re
from pathlib import Path

from processes import python

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
MORE = """
assert seen.column_mass.shape == seen.entropy.shape == out.shape[:3]
dist.destroy_process_group()
"""


def test_the_program_on_the_page_runs(tmp_path):
    blocks = re.findall(r"```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    [program] = [block for block in blocks if "torchrun" in block]
    script = tmp_path / "context.py"
    script.write_text(program + MORE, encoding="utf-8")
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script))
    assert done.returncode == 0, done.stderr
