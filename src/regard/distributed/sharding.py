"""`Sharding`: the positions of a sequence that each rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from regard.distributed import balance
from regard.errors import DistributedError
from regard.masks import Mask

__all__ = ["Sharding"]


@dataclass(frozen=True)
class Sharding:
    """The positions of a sequence that each rank holds, as ranges in the rank's order.

    Any length and any number of ranks are possible; shards may differ in length.

    >>> Sharding.head_tail(10, 2)
    Sharding(rank 0: 0-3, 8-10; rank 1: 3-8)
    >>> Sharding.head_tail(10, 2).sizes
    (5, 5)
    """

    shards: tuple[tuple[range, ...], ...]

    def __post_init__(self) -> None:
        pieces = sorted((p for shard in self.shards for p in shard), key=lambda p: (p.start, p.stop))
        edges = [range(0), *pieces]
        if not self.shards or any(a.stop != b.start or b.step != 1 for a, b in pairwise(edges)):
            raise DistributedError(
                f"{self!r} does not hold every position once; give each rank ranges with step 1 that "
                "together are 0, 1, ... length - 1."
            )
        # Drop empty pieces, and join adjacent ones.
        object.__setattr__(self, "shards", tuple(_joined(shard) for shard in self.shards))

    @classmethod
    def contiguous(cls, length: int, ranks: int) -> Sharding:
        """One run of positions per rank, as equal as possible.

        >>> Sharding.contiguous(7, 3).sizes
        (3, 2, 2)
        """
        _check(length, ranks)
        return cls.of_lengths(_even(length, ranks))

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> Sharding:
        """One run of positions per rank, of these lengths, which may be 0."""
        edges = [0, *accumulate(int(n) for n in lengths)]
        return cls(tuple((range(a, b),) for a, b in pairwise(edges)))

    @classmethod
    def chunked(cls, length: int, ranks: int) -> Sharding:
        """Shards like those of `torch.chunk` and DTensor: ceil(length / ranks) positions, fewer on the last
        ranks.

        >>> Sharding.chunked(9, 4).sizes
        (3, 3, 3, 0)
        """
        _check(length, ranks)
        size = -(-length // ranks)
        return cls.of_lengths([max(0, min(size, length - size * r)) for r in range(ranks)])

    @classmethod
    def head_tail(cls, length: int, ranks: int) -> Sharding:
        """Each rank holds one chunk near the start and its mirror image near the end: balanced for
        `Causal`."""
        _check(length, ranks)
        edges = [0, *accumulate(_even(length, 2 * ranks))]
        chunks = [range(a, b) for a, b in pairwise(edges)]
        return cls(tuple((chunks[r], chunks[-1 - r]) for r in range(ranks)))

    @classmethod
    def by_document(cls, lengths: Sequence[int], ranks: int) -> Sharding:
        """Whole documents only, the longest first to the least loaded rank, so that no keys are exchanged.

        >>> Sharding.by_document([2, 6, 3, 5], 2)
        Sharding(rank 0: 2-8; rank 1: 0-2, 8-16)
        """
        _check(sum(lengths), ranks)
        edges = [0, *accumulate(int(n) for n in lengths)]
        documents = [range(a, b) for a, b in pairwise(edges)]
        held: list[list[range]] = [[] for _ in range(ranks)]
        for document in sorted(documents, key=len, reverse=True):
            least = min(range(ranks), key=lambda r: (sum(len(d) ** 2 for d in held[r]), r))
            held[least].append(document)
        return cls(tuple(tuple(sorted(pieces, key=lambda p: p.start)) for pieces in held))

    @classmethod
    def balanced(cls, mask: Mask | None, length: int, ranks: int) -> Sharding:
        """The simplest layout in which all ranks have the same number of allowed pairs, to within 1 %.

        The candidates are, in order: contiguous, head and tail, two runs per rank chosen by the mask, and one
        run per rank of unequal length. If none is within 1 %, the most balanced is returned.

        >>> from regard.masks import Causal
        >>> Sharding.balanced(Causal(), 1000, 2).pairs(Causal())
        (250250, 250250)
        """
        _check(length, ranks)
        counts = balance.row_pairs(mask, length)
        found: list[tuple[float, Sharding]] = []
        for make in (
            lambda: cls.contiguous(length, ranks),
            lambda: cls.head_tail(length, ranks),
            lambda: cls(balance.folded(counts, ranks)),
            lambda: cls(balance.cut(counts, ranks)),
        ):
            layout = make()
            spread = balance.spread(layout.loads(counts))
            if spread <= balance.CLOSE:
                return layout
            found.append((spread, layout))
        return min(found, key=lambda pair: pair[0])[1]

    @property
    def ranks(self) -> int:
        return len(self.shards)

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of positions per rank."""
        return tuple(sum(map(len, shard)) for shard in self.shards)

    def positions(self, rank: int, device: torch.device | str | None = None) -> Tensor:
        """The positions of a rank in its order, for `position_ids`.

        >>> Sharding.head_tail(8, 2).positions(0)
        tensor([0, 1, 6, 7])
        """
        parts = [torch.arange(p.start, p.stop, device=device) for p in self.shards[rank]]
        return torch.cat(parts) if parts else torch.arange(0, device=device)

    def rows(self, rank: int, piece: range) -> range:
        """The local indices of adjacent positions of a rank.

        >>> Sharding.head_tail(8, 2).rows(0, range(6, 8))
        range(2, 4)
        """
        start = 0
        for held in self.shards[rank]:
            if held.start <= piece.start and piece.stop <= held.stop:
                return range(start + piece.start - held.start, start + piece.stop - held.start)
            start += len(held)
        raise DistributedError(f"rank {rank} of {self!r} does not hold {piece}.")

    def pairs(self, mask: Mask | None) -> tuple[int, ...]:
        """The number of pairs that a mask allows for the queries of each rank."""
        return self.loads(balance.row_pairs(mask, self.length))

    def loads(self, counts: Tensor) -> tuple[int, ...]:
        """The sums over each rank's positions of a number per position."""
        return tuple(
            sum(int(counts[piece.start : piece.stop].sum()) for piece in shard) for shard in self.shards
        )

    def __repr__(self) -> str:
        def held(shard: tuple[range, ...]) -> str:
            return ", ".join(f"{p.start}-{p.stop}" for p in shard) or "nothing"

        shown = [f"rank {rank}: {held(shard)}" for rank, shard in enumerate(self.shards[:4])]
        more = [f"{len(self.shards) - 4} more"] if len(self.shards) > 4 else []
        return f"Sharding({'; '.join([*shown, *more])})"


def _even(length: int, parts: int) -> list[int]:
    return [length // parts + (i < length % parts) for i in range(parts)]


def _check(length: int, ranks: int) -> None:
    if ranks < 1:
        raise DistributedError(f"a sequence cannot be cut for {ranks} ranks; at least 1 is needed.")
    if length < ranks:
        raise DistributedError(
            f"a sequence of {length} positions cannot be cut for {ranks} ranks: each needs at least one. "
            f"Start at most {max(1, length)} ranks."
        )


def _joined(shard: tuple[range, ...]) -> tuple[range, ...]:
    pieces: list[range] = []
    for piece in (p for p in shard if len(p)):
        if pieces and pieces[-1].stop == piece.start:
            pieces[-1] = range(pieces[-1].start, piece.stop)
        else:
            pieces.append(piece)
    return tuple(pieces)
