"""Backend `triton`: NVIDIA GPUs. Kernels load when first used; what they can run is known without them."""

from regard.engine.triton import hopper
from regard.engine.triton.support import cannot_fold, refusal, sums_first_keys

__all__ = ["cannot_fold", "hopper", "refusal", "sums_first_keys"]
