"""Results of an evaluation: losses by policy and by the share of keys kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.atlas.results import plain, table_of
from regard.eviction.loss import HeadLoss, Loss
from regard.eviction.picture import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["Eviction"]


@dataclass(frozen=True, repr=False)
class Eviction:
    """The losses of policies on a model's continuation, at several shares of keys kept."""

    prompt: int
    continuation: int
    layers: tuple[int, ...]
    losses: tuple[Loss, ...]
    found: float | None = None
    """The share of depths at which the full cache gives the exact answer; None without a needle."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The compared policies, in order."""
        return tuple(dict.fromkeys(loss.policy for loss in self.losses))

    def best(self, keep: float) -> Loss:
        """The policy with the smallest KL at a share of keys kept."""
        return min((loss for loss in self.losses if loss.keep == keep), key=lambda loss: loss.kl)

    def of(self, policy: str, keep: float) -> Loss:
        """The loss of one policy at one share."""
        return next(loss for loss in self.losses if (loss.policy, loss.keep) == (policy, keep))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return plain(self)

    def table(self) -> Table:
        """One row per share and policy, smallest loss first, for Rich."""
        needles = any(loss.found is not None for loss in self.losses)
        columns = ["kept", "policy", "KL (nats)", "Δ loss", "mass lost", "worst head"]
        if needles:
            columns += ["found", "log p(answer)"]
        rows = [self._row(loss, needles) for loss in sorted(self.losses, key=lambda x: (x.keep, x.kl))]
        caption = "KL: of the next token, full cache ‖ cut cache; mass lost: attention that went to cut keys"
        if self.found is not None:
            caption += f"; found with the full cache: {self.found:.0%}"
        return table_of(str(self), columns, rows, caption)

    def heads(self, policy: str, keep: float, count: int = 10) -> Table:
        """The heads that lose most of their attention under one policy, for Rich; with the loss of the model
        when only this head loses its keys, if that was measured."""
        loss = self.of(policy, keep)
        columns = ["head", "mass lost"]
        if loss.heads:
            columns += ["KL alone (nats)"] + ["found alone"] * (loss.found is not None)
            rows = [self._alone(one) for one in loss.heads[:count]]
        else:
            places = loss.most(count)
            rows = [
                [f"{self.layers[i]}.{head}", f"{float(loss.mass_lost[i, head]):.1%}"] for i, head in places
            ]
        return table_of(f"{policy}, {keep:.0%} kept: the heads that lose most", columns, rows)

    def figure(self) -> Figure:
        """KL by policy and share, and the attention that each head loses at the smallest share."""
        return draw(self.losses, self.layers, self.prompt, self.found)

    def _alone(self, one: HeadLoss) -> list[str]:
        found = [] if one.found is None else [f"{one.found:.0%}"]
        return [f"{one.layer}.{one.head}", f"{one.mass_lost:.1%}", f"{one.kl:.4f}", *found]

    def _row(self, loss: Loss, needles: bool) -> list[str]:
        lost = loss.mass_lost
        worst = int(lost.nan_to_num(-1.0).argmax())
        row, head = divmod(worst, lost.shape[1])
        cells = [
            f"{loss.keep:.0%}",
            loss.policy,
            f"{loss.kl:.4f}",
            "" if loss.loss_change is None else f"{loss.loss_change:+.3f}",
            f"{float(lost.nanmean()):.1%}",
            f"{self.layers[row]}.{head} {float(lost[row, head]):.0%}",
        ]
        if needles:
            cells += ["" if loss.found is None else f"{loss.found:.0%}"]
            cells += ["" if loss.answer is None else f"{loss.answer:.2f}"]
        return cells

    def __repr__(self) -> str:
        return f"Eviction({self})"

    def __str__(self) -> str:
        return (
            f"{len(self.policies)} policies on a prompt of {self.prompt:,} tokens, judged by the next "
            f"{self.continuation:,}"
        )
