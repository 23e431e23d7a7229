"""An output buffer that is never filled."""

from __future__ import annotations

import torch

MISTAKE = "constant-output"


def attention(q, k, v):
    return torch.zeros_like(q)
