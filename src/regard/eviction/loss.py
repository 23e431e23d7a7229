"""What one policy loses, in the whole model and head by head."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = ["HeadLoss", "Loss"]


@dataclass(frozen=True)
class HeadLoss:
    """What one head loses, and what the model loses if no other head loses its keys."""

    layer: int
    head: int
    mass_lost: float
    kl: float
    found: float | None = None


@dataclass(frozen=True, repr=False)
class Loss:
    """The loss of one policy with one share of keys kept.

    `kl` is KL(full cache ‖ cut cache) of the next token in nats, the mean over the continuation.
    `loss_change` is the change of the loss on the continuation, in nats per token, None if that is one token.
    `mass_lost` is the share of each head's attention, in the continuation with the full cache, on evicted
    keys: (layers, heads), padded with NaN. For needles, `found` is the share of depths at which the model
    gives the exact answer, and `answer` its mean log-probability. `heads` are those that lose most, each
    measured alone, if asked for.
    """

    policy: str
    keep: float
    kept: int
    kl: float
    loss_change: float | None
    mass_lost: Float[Tensor, "layers heads"]
    found: float | None = None
    answer: float | None = None
    heads: tuple[HeadLoss, ...] = ()

    def most(self, count: int) -> list[tuple[int, int]]:
        """The row of the layer and the head, for the heads that lose most attention."""
        lost = self.mass_lost
        order = lost.nan_to_num(-1.0).flatten().argsort(descending=True, stable=True)[:count].tolist()
        return [divmod(place, lost.shape[1]) for place in order]
