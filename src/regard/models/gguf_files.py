"""Parses a GGUF file once; transformers would parse its header three times: config, tokenizer, weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

__all__ = ["read_once"]


@contextmanager
def read_once() -> Iterator[None]:
    """Within the block, parse each GGUF file once, and look up the names of its tensors in one table."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        """gguf's reader on plain arrays: slicing a memory map is many times slower."""

        def _get(
            self, offset: int, dtype: Any, count: int = 1, override_order: Any = None
        ) -> np.ndarray[Any, Any]:
            if "plain" not in self.__dict__:
                self.plain = np.asarray(self.data)
            count = int(count)
            found = self.plain[offset : int(offset) + np.dtype(dtype).itemsize * count].view(dtype)[:count]
            order = self.byte_order if override_order is None else override_order
            return found if order == "I" else found.view(found.dtype.newbyteorder(order))

    with (
        patch.object(gguf, "GGUFReader", cache(Reader)),
        patch.object(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
    ):
        yield
