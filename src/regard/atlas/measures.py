"""Measures of heads and keys from attention weights, which are often taken for importance."""

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
    """The measures of every head, by (layer, head):

    - weight: its sharpness, the mean over queries of the largest weight, max_j α_ij;
    - norm: the size of its output, the mean over queries of Σ_j ‖α_ij v_j W_O‖, if W_O is found.
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
    """The measures of every key, each a tensor (n,):

    - weight: its weight from query `at`, the mean over layers and heads;
    - mass: its weight from the queries that may see it, the mean over these queries, layers and heads;
    - norm: its contribution to `at`, Σ_h ‖α_at,j v_j W_O‖, the mean over layers, if W_O is found;
    - rollout: its share of the state at `at`, through all layers.
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
