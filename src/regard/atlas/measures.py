"""What attention suggests about heads and keys: the measures that people read importance from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.atlas.anatomy import output_projection
from regard.atlas.rollout import rollout, value_norms
from regard.models import Layer, Recording
from regard.stats import ColumnMass

__all__ = ["head_measures", "key_measures"]


def head_measures(recording: Recording, model: Any) -> dict[str, dict[tuple[int, int], float]]:
    """Of every head, by (layer, head):

    - weight: how sure it is of where to look, the mean over queries of the largest weight, max_j α_ij;
    - norm: how much it writes, the mean over queries of Σ_j ‖α_ij v_j W_O‖, where W_O can be found.
    """
    found: dict[str, dict[tuple[int, int], float]] = {"weight": {}}
    for layer in recording.layers.values():
        sure = (layer.max_score.value - layer.lse)[0].exp().mean(-1)
        _put(found["weight"], layer, sure)
        if _projected(layer, model):
            norms = value_norms(model, layer, layer.map)
            written = layer.map.right(norms[None, ..., None])[0, ..., 0].mean(-1)
            _put(found.setdefault("norm", {}), layer, written)
    return _complete(found, recording)


def key_measures(recording: Recording, model: Any, at: int) -> dict[str, Tensor]:
    """Of every key, each a tensor (n,):

    - weight: the weight that query `at` gives it, the mean over layers and heads;
    - mass: the weight that the queries which may see it give it, the mean over them, layers and heads;
    - norm: what it writes into `at`, Σ_h ‖α_at,j v_j W_O‖, the mean over layers, where W_O can be found;
    - rollout: how much of it reaches `at` through all layers.
    """
    sums: dict[str, list[Tensor]] = {"weight": [], "mass": [], "norm": []}
    for layer in recording.layers.values():
        row = layer.map[0, :, at]
        sums["weight"].append(row.mean(0))
        sums["mass"].append(layer.map.stats(ColumnMass(normalise=True))["column_mass"][0].mean(0))
        if _projected(layer, model):
            sums["norm"].append((row * value_norms(model, layer, layer.map)).sum(0))
    layers = len(recording.layers)
    found = {name: torch.stack(parts).mean(0) for name, parts in sums.items() if len(parts) == layers}
    return {**found, "rollout": rollout(recording, at)}


def _projected(layer: Layer, model: Any) -> bool:
    width = layer.map.problem.v.shape[-1]
    return output_projection(model, layer.name, layer.map.shape[1], width) is not None


def _put(found: dict[tuple[int, int], float], layer: Layer, values: Tensor) -> None:
    found.update({(layer.index, head): value for head, value in enumerate(values.tolist())})


def _complete(
    found: dict[str, dict[tuple[int, int], float]], recording: Recording
) -> dict[str, dict[tuple[int, int], float]]:
    """Drop measures that only some layers have: they would rank only some heads."""
    heads = sum(layer.lse.shape[1] for layer in recording.layers.values())
    return {name: values for name, values in found.items() if len(values) == heads}
