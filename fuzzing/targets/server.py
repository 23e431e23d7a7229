"""The viewer's server: requests made at random from its own description of itself."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis

from choice import Seeded
from fuzzing.target import Target

__all__ = ["SERVER"]

EXAMPLES = 10


@cache
def schema() -> tuple[Any, str]:
    """The server over a recording of odd lengths, without models; made once a process."""
    from viewer.random_requests import described, without_models
    from viewer.samples import odd, saved

    folder = Path(tempfile.mkdtemp(prefix="fuzzing-"))
    without_models()
    return described(saved(odd(), folder / "odd.regard"), folder / "cache")


def check(seed: int) -> int:
    from viewer.random_requests import OPERATIONS, answers_well

    path, method = Seeded(seed).pick(OPERATIONS)
    hypothesis.seed(seed)(answers_well(*schema(), path, method, EXAMPLES))()
    return EXAMPLES


SERVER = Target("server", "one request to the viewer's server", check, tested=1)
