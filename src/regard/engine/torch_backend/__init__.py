"""Backend `torch`: plain torch operations, on every device, with every option; it is the reference."""

from regard.engine.torch_backend.backend import TorchBackend

__all__ = ["TorchBackend"]
