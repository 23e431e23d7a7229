"""One step of a traced computation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Step"]


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its name, its formula, a sentence about it, the numbers and their axes.

    Axes are called batch, heads, query, key, token (a query and a key at once), dim (of one head) and model.

    >>> from regard.tracing import trace
    >>> step = trace([[1, 0]], [[1, 0], [0, 1]], [[10, 0], [0, 10]])["scores"]
    >>> step
    Step scores = q kᵀ (query 1 × key 2)
    >>> step.value
    tensor([[1., 0.]], dtype=torch.float64)
    """

    name: str
    formula: str
    sentence: str
    value: Tensor
    axes: tuple[str, ...]

    def __repr__(self) -> str:
        sizes = " × ".join(f"{name} {size}" for name, size in zip(self.axes, self.value.shape, strict=True))
        return f"Step {self.formula} ({sizes})"

    def at(self, batch: int, head: int) -> Tensor:
        """The numbers of one batch row and one head, for the axes that this step has."""
        value = self.value
        for axis, index in (("batch", batch), ("heads", head)):
            if axis in self.axes:
                value = value[index]  # batch comes before heads, so each is the leading axis in its turn
        return value
