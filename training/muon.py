"""Muon: momentum whose matrices are made orthogonal before they are added (Jordan et al., 2024).

Every direction of a weight matrix then moves equally far, the common ones and the rare ones. Matrices of one
shape are stacked: nine layers take the time of one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Muon", "orthogonal"]

# The quintic of Jordan et al.: its slope at 0 is as steep as five iterations allow, and singular values end
# between 0.7 and 1.2.
A, B, C, ITERATIONS = 3.4445, -4.7750, 2.0315, 5


class Muon(torch.optim.Optimizer):
    """For the matrices of hidden layers; embeddings and gains want another optimizer."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        shapes: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in matrices:
            shapes.setdefault(matrix.shape, []).append(matrix)
        groups = [{"params": alike} for alike in shapes.values()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            matrices, rate = group["params"], group["lr"]
            gradients = torch.stack([matrix.grad for matrix in matrices])
            state = self.state[matrices[0]]
            moving = state.setdefault("momentum", torch.zeros_like(gradients))
            moving.lerp_(gradients, 1 - group["momentum"])
            changes = orthogonal(gradients.lerp(moving, group["momentum"]))
            rows, columns = matrices[0].shape
            # A tall matrix would write less into each of its outputs than a square one.
            scale = max(1.0, rows / columns) ** 0.5
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
            torch._foreach_add_(matrices, list(changes.to(matrices[0].dtype)), alpha=-rate * scale)


def orthogonal(matrices: Float[Tensor, "stack rows columns"]) -> Float[Tensor, "stack rows columns"]:
    """About U Vᵀ of each matrix U S Vᵀ: the same directions, all of length near 1.

    >>> found = orthogonal(torch.tensor([[[3.0, 0.0], [0.0, 0.2]]]))
    >>> bool((torch.linalg.svdvals(found.float()) - 1).abs().max() < 0.35)
    True
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(ITERATIONS):
        squared = x @ x.mT
        x = A * x + (B * squared + C * squared @ squared) @ x
    return x.mT if tall else x
