"""Backend `triton` for NVIDIA GPUs. Kernels are imported when first used; which calls they can run is known
without them."""

from regard.engine.triton import hopper
from regard.engine.triton.support import (
    MAX_DECODE_QUERIES,
    MAX_FUSED_TOP_KEYS,
    MAX_TOP_KEYS,
    cannot_fold,
    fits,
    refusal,
)

__all__ = [
    "MAX_DECODE_QUERIES",
    "MAX_FUSED_TOP_KEYS",
    "MAX_TOP_KEYS",
    "cannot_fold",
    "fits",
    "hopper",
    "refusal",
]
