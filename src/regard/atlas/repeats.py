"""The exact weight on keys that are chosen by their tokens, without reading the rest of the map.

Queries and keys are sorted by token, so that equal tokens are adjacent, and the sorted map is read in blocks
along its diagonal. A token that occurs c times costs c² cells; n tokens cost at least n × ROWS.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from regard.engine.stopping import check
from regard.maps import AttentionMap

__all__ = ["ROWS", "apart", "sorted_blocks", "token_mass"]

ROWS = 128
# Cells of one read, over all heads: 16 MiB in float32.
CELLS = 1 << 22


def token_mass(
    seen: AttentionMap,
    q_ids: Int64[Tensor, " q"],
    k_ids: Int64[Tensor, " k"],
    shift: int = 0,
    places: str = "before",
) -> Float[Tensor, "heads q"]:
    """Σ_j α_ij over the keys j whose token `shift` places earlier is the query's own token, of batch row 0.

    With shift 0 these keys are other occurrences of the same token, with shift 1 the tokens after them.
    `places` restricts the occurrences: "before" the query; "others", anywhere but at the query itself; or
    "any", for queries and keys of different texts.

    >>> import regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> ids = torch.tensor([5, 6, 5, 5])
    >>> token_mass(regard.AttentionMap.of(x, x, mask=regard.Causal()), ids, ids, shift=1)
    tensor([[0.0000, 0.0000, 0.3333, 0.5000]])
    """
    _, heads, q, k = seen.shape
    weight = seen.lse.new_zeros(heads, q)
    q_ids, k_ids = q_ids.cpu(), k_ids.cpu()[: max(0, k - shift)]
    queries, keys = q_ids.argsort(stable=True), k_ids.argsort(stable=True)
    for rows, cols in sorted_blocks(q_ids[queries], k_ids[keys], heads):
        check()
        at, same = queries[rows.start : rows.stop], keys[cols.start : cols.stop]
        match = (q_ids[at][:, None] == k_ids[same]) & apart(at + k - q, same, places)
        if match.any():
            tile = seen[0, :, at, same + shift]
            weight[:, at.to(weight.device)] += (tile * match.to(tile)).sum(-1)
    return weight


def sorted_blocks(
    q_sorted: Int64[Tensor, " q"], k_sorted: Int64[Tensor, " k"], heads: int
) -> Iterator[tuple[range, range]]:
    """Blocks of sorted queries, each with the sorted keys of the same tokens."""
    for start in range(0, len(q_sorted), ROWS):
        rows = range(start, min(start + ROWS, len(q_sorted)))
        low = int(torch.searchsorted(k_sorted, q_sorted[rows.start]))
        high = int(torch.searchsorted(k_sorted, q_sorted[rows.stop - 1], right=True))
        step = max(1, CELLS // (heads * len(rows)))
        for first in range(low, high, step):
            yield rows, range(first, min(first + step, high))


def apart(own: Int64[Tensor, " q"], same: Int64[Tensor, " k"], places: str) -> Bool[Tensor, "#q k"]:
    """Which occurrences of a token count for queries at the positions `own`; see `token_mass`."""
    if places == "any":
        return torch.ones(1, len(same), dtype=torch.bool)
    return own[:, None] > same if places == "before" else own[:, None] != same
