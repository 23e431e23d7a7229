"""Weights as bare parameters, one (heads, d_model, dim) tensor each, by einsum."""

from __future__ import annotations

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model=32, heads=4):
        super().__init__()
        shape = (heads, d_model, d_model // heads)
        self.d_model = d_model
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(shape) / d_model**0.5) for _ in range(3))
        self.W_O = nn.Parameter(torch.randn(heads, d_model // heads, d_model) / d_model**0.5)

    def forward(self, x):
        q, k, v = (torch.einsum("bnm,hmd->bhnd", x, w) for w in (self.W_Q, self.W_K, self.W_V))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return torch.einsum("bhnd,hdm->bnm", weights @ v, self.W_O)
