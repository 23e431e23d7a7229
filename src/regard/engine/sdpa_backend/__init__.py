"""Backend `sdpa`: PyTorch's fused kernels."""

from regard.engine.sdpa_backend.backend import SdpaBackend

__all__ = ["SdpaBackend"]
