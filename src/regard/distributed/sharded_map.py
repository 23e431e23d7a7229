"""`ShardedMap`: the map of a sharded sequence, which reads tiles from the ranks that hold them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.distributed.agreement import agree
from regard.distributed.attending import Work
from regard.distributed.partial import cells_of
from regard.engine.scoring import Place
from regard.errors import MapError, RegardError

__all__ = ["ShardedMap"]

# The most cells to compute at once, as for `AttentionMap`.
CELLS = 1 << 27


class ShardedMap:
    """The attention map of a sharded sequence, indexed by positions of the whole sequence.

    Reading is a collective: every rank of the group must read the same tile, and every rank gets it. If a
    rank reads another tile, or none, all ranks raise within the timeout. An index is an int, a slice, or a
    list or tensor of ints; lists select every combination, as `numpy.ix_` does.
    """

    def __init__(self, work: Work, lse: Tensor) -> None:
        self.work, self._lse = work, lse.detach()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        p, needs = self.work.call.problem, self.work.needs
        return p.batch, p.heads, needs.queries.length, needs.keys.length

    def __repr__(self) -> str:
        batch, heads, q, k = self.shape
        ranks = self.work.ranks
        return f"ShardedMap(batch={batch}, heads={heads}, q={q}, k={k}, rank {ranks.rank} of {ranks.size})"

    def __getitem__(self, index: Any) -> Tensor:
        """A tile of weights; a collective call."""
        return self._read(index, "weights")

    def scores(self, index: Any) -> Tensor:
        """A tile of logits, -inf where masked; a collective call."""
        return self._read(index, "scores")

    def _read(self, index: Any, what: str) -> Tensor:
        error, axes, dropped = None, [], []
        try:
            axes, dropped = _axes(index, self.shape)
        except RegardError as found:
            error = found
        asked = {"what": what, "index": repr([axis.tolist() for axis in axes])}
        agree(self.work.ranks, "a read of the map", asked, error)
        batch, heads, rows, cols = axes
        with torch.no_grad():
            k = self._keys(batch, heads, cols)
            found = self._assembled(self._own(batch, heads, rows, cols, k, what), rows)
        for axis in reversed(dropped):
            found = found.squeeze(axis)
        return found

    def _keys(self, batch: Tensor, heads: Tensor, cols: Tensor) -> Tensor:
        """The selected keys, from the ranks that hold them."""
        p, needs = self.work.call.problem, self.work.needs
        local, owners = _held(cols, needs.keys)
        k = p.k.detach()[batch][:, heads // p.group]
        return self._shared(k[:, :, local[self.work.ranks.rank].to(k.device)], owners, 2)

    def _own(self, batch: Tensor, heads: Tensor, rows: Tensor, cols: Tensor, k: Tensor, what: str) -> Tensor:
        """The cells of the selected rows that this rank holds."""
        call, needs, me = self.work.call, self.work.needs, self.work.ranks.rank
        p = call.problem
        local, owners = _held(rows, needs.queries)
        here, mine = local[me].to(p.q.device), rows[owners[me]]
        q = p.q.detach()[batch][:, heads][:, :, here]
        device = p.q.device
        places = [x.to(device) for x in (batch, heads, mine, cols)]
        at = Place(places[0], places[1], places[2], places[3], needs.offset, device)
        bias = p.scoring.bias
        if isinstance(bias, Tensor):
            bias = bias.detach()
            line = here if call.bias_rows == "rank" else mine
            for axis, chosen in enumerate((batch, heads, line, cols)):
                bias = bias.index_select(axis, chosen.to(bias.device)) if bias.shape[axis] > 1 else bias
        s = cells_of(call, q, k, at, bias if isinstance(bias, Tensor) else None)
        if what == "scores":
            return s
        lse = self._lse[batch][:, heads][:, :, here]
        lse = lse.masked_fill(lse == -torch.inf, torch.inf)
        return (s - lse[..., None]).clamp_(max=0.0).exp_()

    def _assembled(self, cells: Tensor, rows: Tensor) -> Tensor:
        return self._shared(cells, _held(rows, self.work.needs.queries)[1], 2)

    def _shared(self, x: Tensor, owners: list[Tensor], axis: int) -> Tensor:
        """The entries of all ranks along an axis, in the requested order."""
        ranks = self.work.ranks
        others = [rank for rank in range(ranks.size) if rank != ranks.rank]
        shape = list(x.shape)
        lands: dict[int, Tensor] = {}
        for rank in others:
            shape[axis] = len(owners[rank])
            lands[rank] = x.new_empty(shape)
        ranks.swap(dict.fromkeys(others, x), lands).wait()
        lands[ranks.rank] = x
        shape[axis] = sum(map(len, owners))
        found = x.new_empty(shape)
        for rank, part in lands.items():
            found.index_copy_(axis, owners[rank].to(x.device), part)
        return found


def _held(chosen: Tensor, layout: Any) -> tuple[list[Tensor], list[Tensor]]:
    """For each rank: the selected ones of its rows, and their indices in the selection."""
    place = torch.empty(layout.length, dtype=torch.long)
    owner = torch.empty(layout.length, dtype=torch.long)
    for rank in range(layout.ranks):
        positions = layout.positions(rank)
        place[positions] = torch.arange(len(positions))
        owner[positions] = rank
    which = [(owner[chosen] == rank).nonzero().flatten() for rank in range(layout.ranks)]
    return [place[chosen[at]] for at in which], which


def _axes(index: Any, shape: tuple[int, ...]) -> tuple[list[Tensor], list[int]]:
    """The selected indices of each axis, and the axes that ints remove."""
    given = index if isinstance(index, tuple) else (index,)
    if len(given) > 4:
        raise MapError(f"a map has 4 axes (batch, heads, q, k), and {len(given)} were indexed.")
    axes, dropped = [], []
    for axis, (one, size) in enumerate(zip([*given, *[slice(None)] * (4 - len(given))], shape, strict=True)):
        if isinstance(one, slice):
            axes.append(torch.tensor(range(size)[one], dtype=torch.long))
            continue
        if isinstance(one, int):
            dropped.append(axis)
        try:
            listed = torch.as_tensor([*one] if isinstance(one, range) else one)
            chosen = listed.reshape(-1).long().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise MapError(f"{one!r} is no index; give an int, a slice, or a list of ints.") from None
        if bool(((chosen < -size) | (chosen >= size)).any()):
            raise MapError(f"index {one!r} is out of range for axis {axis} of length {size}.")
        axes.append(chosen % size)
    cells = 1
    for axis in axes:
        cells *= len(axis)
    if cells > CELLS:
        raise MapError(f"{cells:,} cells are too many to build at once (at most {CELLS:,}); read less.")
    return axes, dropped
