"""A process that imports this ends when the test process $REGARD_TESTS does."""

from __future__ import annotations

import os

from bound import end_with

__all__: list[str] = []

end_with(int(os.environ["REGARD_TESTS"]))
