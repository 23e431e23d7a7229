"""A softmax with a backward pass of its own that forgets the sum over the row."""

from __future__ import annotations

import torch

MISTAKE = "broken-gradients"


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        weights = scores.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, gradient):
        (weights,) = ctx.saved_tensors
        return weights * gradient


def attention(q, k, v):
    return Softmax.apply(q @ k.mT * q.shape[-1] ** -0.5) @ v
