"""Coroutines run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["finished"]


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns; on a thread of its own, as browser tests leave a loop running on this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
