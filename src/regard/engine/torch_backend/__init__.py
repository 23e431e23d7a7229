"""Backend `torch`: plain torch operations, on every device, for every option. It defines what is true."""

from regard.engine.torch_backend.backend import TorchBackend

__all__ = ["TorchBackend"]
