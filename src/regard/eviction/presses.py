"""Eviction policies as presses of NVIDIA's kvpress, without eager attention.

kvpress cuts a model's cache layer by layer after the prompt. Its own attention-based presses need the whole
matrix, or compute some rows; this one reads the lazy map. kvpress pins transformers below 5.3, and regard
needs a newer one for `watch`, which presses don't use. So, in a separate environment, run `pip install
regard`, then `pip install kvpress`; pip installs it with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError
from regard.eviction.policies import Policy, Room, SnapKV
from regard.maps import AttentionMap
from regard.masks import Causal, Window

ScorerPress: Any = object
compute_n_kept: Any = None
get_prerope_query_states: Any = None
MISSING: ImportError | None = None
try:
    from kvpress.presses.scorer_press import ScorerPress
    from kvpress.utils import compute_n_kept, get_prerope_query_states
except ImportError as error:
    MISSING = error

__all__ = ["PolicyPress"]


@dataclass
class PolicyPress(ScorerPress):
    """Any policy as a press: `with PolicyPress(0.75, SnapKV())(model): model.generate(...)`.

    This supports models with rotary positions and causal attention, like kvpress. `kvzip` is refused, because
    it reads the prompt twice; kvpress has its own.
    """

    compression_ratio: float = 0.0
    policy: Policy = field(default_factory=SnapKV)

    def __post_init__(self) -> None:
        if MISSING is not None:
            raise ModelError(
                f"presses need kvpress, which cannot be imported here ({MISSING}). In an environment of its "
                "own: pip install regard, then pip install kvpress"
            )
        super().__post_init__()
        if self.policy.reads_twice:
            raise ModelError(f"{self.policy.name} reads the prompt twice, and a press sees it once.")

    def score(
        self,
        module: torch.nn.Module,
        hidden_states: Tensor,
        keys: Float[Tensor, "batch kv_heads k dim"],
        values: Tensor,
        attentions: Tensor | None,
        kwargs: dict[str, Any],
    ) -> Float[Tensor, "batch kv_heads k"]:
        """The policy's scores for the keys of the prompt."""
        batch, kv_heads, k, dim = keys.shape
        window = getattr(module, "sliding_window", None)
        mask = Causal() if window is None else Causal() & Window(window)
        scale = getattr(module, "scaling", dim**-0.5)
        queries = _turned(get_prerope_query_states(module, hidden_states), kwargs.get("position_embeddings"))
        room = Room(getattr(module, "layer_idx", 0), kv_heads, k, compute_n_kept(k, self.compression_ratio))
        scores = []
        for row in range(batch):
            seen = AttentionMap.of(queries[row : row + 1], keys[row : row + 1], mask, scale=scale)
            scores.append(self.policy.scores(seen.stats(*self.policy.statistics), room))
        return torch.stack(scores).to(keys.device)


def _turned(q: Tensor, positions: tuple[Tensor, Tensor] | None) -> Tensor:
    """Apply rotary positions to the queries."""
    if positions is None:
        raise ModelError("the model gives its layers no rotary positions; presses support no other kind.")
    cos, sin = (x[:, None] for x in positions)
    half = q.shape[-1] // 2
    turned = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + turned * sin
