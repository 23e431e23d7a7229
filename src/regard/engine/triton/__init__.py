"""Backend `triton`: NVIDIA GPUs. Kernels load when first used; what they can run is known without them."""

from regard.engine.triton import hopper
from regard.engine.triton.support import (
    MOST_KEYS,
    MOST_QUERIES,
    MOST_TOLD,
    cannot_fold,
    fits,
    refusal,
    sums_first_keys,
)

__all__ = [
    "MOST_KEYS",
    "MOST_QUERIES",
    "MOST_TOLD",
    "cannot_fold",
    "fits",
    "hopper",
    "refusal",
    "sums_first_keys",
]
