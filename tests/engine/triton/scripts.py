"""Scripts beside these tests that compile kernels, in a process of their own: in that of the tests they are
interpreted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from processes import checkout, python


def printed_by(script: str, *arguments: str) -> Any:
    """What a script prints last, which is JSON. It has the Triton that the tests have."""
    environment = checkout()
    environment.pop("TRITON_INTERPRET", None)
    done = python(Path(__file__).with_name(script), *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
