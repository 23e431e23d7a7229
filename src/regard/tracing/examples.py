"""Worked examples that are small enough to recompute by hand."""

from __future__ import annotations

from typing import Any

from regard.errors import RegardError
from regard.masks import Causal
from regard.tracing.result import Trace
from regard.tracing.trace import trace

__all__ = ["EXAMPLES", "example"]

EXAMPLES: dict[str, dict[str, Any]] = {
    "cat": {
        "tokens": ["The", "cat", "sat", "down"],
        "x": [[1.0, 0.5, -0.3, 0.8], [0.2, 1.2, 0.7, -0.1], [-0.5, 0.3, 1.1, 0.4], [0.6, -0.2, 0.5, 1.3]],
        "w_q": [[0.1, 0.3], [0.4, -0.2], [-0.1, 0.5], [0.2, 0.1]],
        "w_k": [[0.3, -0.1], [0.2, 0.4], [0.1, 0.3], [-0.2, 0.2]],
        "w_v": [[0.5, 0.1], [-0.3, 0.6], [0.2, -0.1], [0.4, 0.3]],
        "mask": Causal(),
    },
    "three": {
        "tokens": ["query"],
        "key_tokens": ["first", "second", "third"],
        "q": [[1, 0]],
        "k": [[1, 0], [0, 1], [1, 1]],
        "v": [[10, 0], [0, 10], [5, 5]],
    },
}
"""Arguments of `trace` by name: four token vectors under a causal mask, and one query with three keys."""


def example(name: str) -> Trace:
    """The trace of one of the `EXAMPLES`.

    >>> example("cat").weights
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.4734, 0.5266, 0.0000, 0.0000],
            [0.3076, 0.3517, 0.3408, 0.0000],
            [0.2268, 0.2849, 0.2603, 0.2279]], dtype=torch.float64)
    """
    if name not in EXAMPLES:
        raise RegardError(f"no example is called {name!r}; there are {', '.join(map(repr, EXAMPLES))}.")
    return trace(**EXAMPLES[name])
