"""The largest score of each row and its key, tile by tile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Peaks"]

# Columns c, c + GROUPS, c + 2 GROUPS, … of a tile form a group: a maximum over groups runs along memory.
GROUPS = 32


class Peaks:
    """Running maxima of a block of rows. Of equal scores the first key counts.

    Finding a maximum is far cheaper than finding its place. So a tile gives the maximum of each group of its
    columns first; only in rows where it beats what was seen, one group is searched.
    """

    def __init__(self, rows: Float[Tensor, "stacks rows dim"]) -> None:
        self.value = rows.new_full(rows.shape[:2], -torch.inf)
        self.key = torch.full(rows.shape[:2], -1, dtype=torch.long, device=rows.device)

    def note(self, s: Float[Tensor, "stacks rows k"], first: int) -> Float[Tensor, "stacks rows"]:
        """Fold in the scores of a tile that begins at key `first`; returns the tile's own row maxima."""
        groups = GROUPS if s.shape[-1] % GROUPS == 0 else 1
        lanes = s.unflatten(-1, (-1, groups))  # (stacks, rows, lanes, groups)
        tops = lanes.amax(2) if groups > 1 else s.amax(-1, keepdim=True)
        top = tops.amax(-1)
        better = (top > self.value) | ((top == self.value) & (first < self.key))
        stack, row = better.nonzero(as_tuple=True)
        if len(stack):
            best = top[stack, row]
            self.value[stack, row] = best
            if groups == 1:
                self.key[stack, row] = s[stack, row].argmax(-1) + first
            else:
                self.key[stack, row] = self._search(lanes, tops, best, stack, row) + first
        return top

    @staticmethod
    def _search(lanes: Tensor, tops: Tensor, best: Tensor, stack: Tensor, row: Tensor) -> Tensor:
        """The first column that holds the best score of each row; ties may lie in several groups."""
        groups = tops.shape[-1]
        group = tops[stack, row].argmax(-1)
        lane = lanes[stack, row, :, group].argmax(-1)
        column = lane * groups + group
        tied = ((tops[stack, row] == best[:, None]).sum(-1) > 1).nonzero().squeeze(-1)
        if len(tied):
            whole = lanes[stack[tied], row[tied]].flatten(1)
            column[tied] = (whole == best[tied, None]).to(torch.int8).argmax(-1)
        return column
