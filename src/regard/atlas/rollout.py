"""`rollout`: the flow of attention from an output to the input tokens, through all layers, without n × n
matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.anatomy import output_projection
from regard.atlas.flow import Flow
from regard.atlas.reading import place_of
from regard.engine.second_pass import frame_of
from regard.errors import MapError, ModelError, RecordingError
from regard.maps import AttentionMap
from regard.models import Layer, Recording
from regard.stats import NormWeighted

__all__ = ["rollout", "value_norms"]

# For up to this many queries single rows are read instead of whole maps.
FEW = 16


def rollout(
    recording: Recording,
    query: int | Sequence[int] = -1,
    *,
    norm_weighted: bool = False,
    model: Any = None,
    residual: float = 0.5,
    batch: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Float[Tensor, "... n"]:
    """Attention rollout (Abnar and Zuidema, 2020): the share of each input token in a query's final state.

    The row of `query` in Π_l ((1 − residual) A_l + residual I), from the top layer down as products of a
    vector with each map, so that memory is O(n) at any length. It sums to 1 (to less where a layer has a
    learned sink). Several queries give several rows, (queries, n), in the same passes.

    A_l is the mean of the layer's heads, (1/H) Σ_h A^h. With `norm_weighted` heads are weighted by the norm
    of their contributions (Kobayashi et al., 2020): A_l,ij = Σ_h ‖α^h_ij v^h_j W_O^h‖ / Σ_j′ Σ_h ‖α^h_ij′
    v^h_j′ W_O^h‖. A recording holds the values v but not W_O, so `model` must be the model that was recorded.

    The recorded layers of the main stack are multiplied; a layer that was not recorded counts as the
    identity. Rollout follows weights and ignores MLPs: `knockout` measures the effect of a path.

    >>> import torch
    >>> from regard.models import bundled, watch
    >>> model, tokenizer = bundled()
    >>> with torch.no_grad(), watch(model) as recording:
    ...     _ = model(**tokenizer("The heron stood upon one leg.", return_tensors="pt"))
    >>> flow = rollout(recording)
    >>> flow.shape, round(float(flow.sum()), 4)
    (torch.Size([9]), 1.0)
    """
    layers = _layers(recording, batch)
    if not 0.0 <= residual <= 1.0:
        raise MapError(f"residual is {residual}; it must be from 0 (attention alone) to 1 (nothing mixes).")
    if norm_weighted and model is None:
        raise RecordingError(
            "norm_weighted=True needs the output projections W_O, which a recording does not hold; give "
            "model=, the model that was recorded."
        )
    if norm_weighted:
        recording.check_model(model)
    several = list(query) if isinstance(query, Iterable) else [query]
    found: Tensor | None = None
    for done, layer in enumerate(reversed(layers)):
        seen = _square(layer)
        if found is None:
            found = _started(several, seen)
        columns = value_norms(model, layer, seen) if norm_weighted else None
        found = (1 - residual) * _step(seen, found, columns) + residual * found
        if progress is not None:
            progress(done + 1, len(layers))
    if found is None:
        raise RecordingError("the recording has no layers; run the model inside the watch block.")
    return found if isinstance(query, Iterable) else found[0]


def value_norms(model: Any, layer: Layer, seen: AttentionMap) -> Float[Tensor, "heads k"]:
    """‖v_j W_O^h‖ for every head and key of a layer's map."""
    values = seen.problem.v
    matrix = output_projection(model, layer.name, seen.shape[1], values.shape[-1])
    if matrix is None:
        raise ModelError(
            f"the output projection of {layer.name} was not found, so its heads cannot be weighed by what "
            "they write. Use norm_weighted=False."
        )
    return NormWeighted(matrix).init(frame_of(seen.problem))["norms"][0, ..., 0]


def _layers(recording: Recording, row: int) -> list[Layer]:
    """The layers of one text of the batch, without padding, from the bottom up."""
    if not recording.complete:
        raise RecordingError(
            "the recording was cut short and lacks layers, so paths through it would be wrong. Record again, "
            "or complete it with watch(..., resume=True)."
        )
    main = recording.layers
    size = next(iter(main.maps.values())).shape[0]
    if not 0 <= row < size:
        raise MapError(f"batch is {row}; the recording has {size} texts, 0 to {size - 1}.")
    return sorted(recording.alone(row, main.role).layers.values(), key=lambda layer: layer.index)


def _square(layer: Layer) -> AttentionMap:
    """A layer's map, in which every token must be a query and a key."""
    q_len, k_len = layer.map.shape[2:]
    if q_len != k_len:
        raise RecordingError(
            f"layer {layer.index} has {q_len} queries and {k_len} keys; rollout follows one text through "
            "layers in which every token is both. Record the whole text, not its end."
        )
    return layer.map


def _started(queries: Sequence[int], seen: AttentionMap) -> Float[Tensor, "rows n"]:
    n = seen.shape[2]
    places = [place_of(query, n) for query in queries]
    if not places:
        raise MapError("query is empty; give one position, or several.")
    return torch.nn.functional.one_hot(torch.tensor(places), n).to(seen.device, seen.dtype)


def _step(seen: AttentionMap, rows: Tensor, columns: Tensor | None) -> Float[Tensor, "rows n"]:
    """rows · A for the joined heads of one layer."""
    if columns is None:
        columns = torch.full((seen.shape[1], seen.shape[3]), 1 / seen.shape[1], device=seen.device)
    else:
        # Normalise the rows: every query passes on its full share, independent of the norms of the values.
        written = seen.right(columns[None, ..., None])[0, ..., 0].sum(0)
        rows = rows / written.masked_fill(written == 0, 1.0)
    columns = columns.to(seen.dtype)
    live = rows.any(0).nonzero().flatten()
    if len(live) > FEW:
        return seen.stats(Flow(rows, columns))["flow"]
    tile = seen[0, :, live.tolist()]
    return torch.einsum("rq,hqk,hk->rk", rows[:, live], tile, columns)
