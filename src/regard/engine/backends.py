"""The backends in the order in which `auto` prefers them; the last is the reference, which runs every
call."""

from __future__ import annotations

from regard.engine.backend import Backend
from regard.engine.native.backend import NativeBackend
from regard.engine.sdpa_backend.backend import SdpaBackend
from regard.engine.torch_backend.backend import TorchBackend
from regard.engine.triton.backend import SdpaOnCuda, TritonBackend

__all__ = ["REGISTRY"]

REGISTRY: tuple[Backend, ...] = (
    SdpaOnCuda(),
    SdpaBackend(),
    TritonBackend(),
    NativeBackend(),
    TorchBackend(),
)
