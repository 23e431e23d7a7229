"""Saves observations to a safetensors file: tensors by name, everything else as JSON metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

import regard.stats
from regard.engine.gemm import aligned
from regard.engine.inputs import Options, problem_of
from regard.errors import MapError, ShapeError
from regard.maps.attention_map import AttentionMap
from regard.maps.damage import believing
from regard.masks import Mask
from regard.scores import Bias, Score

__all__ = ["FORMAT", "Parts", "load", "save"]

FORMAT = 1


class Parts(NamedTuple):
    """The parts of an observation, in the order of its constructor."""

    out: Tensor
    lse: Tensor
    stats: dict[str, Any]
    map: AttentionMap


def save(seen: Parts, path: str | Path) -> None:
    """Write under a temporary name and rename, so that a crash leaves the old file or the new one."""
    from safetensors.torch import save_file

    path = Path(path)
    tensors = {"out": seen.out, "lse": seen.lse} | _recipe_tensors(seen.map)
    layout = {name: _flatten(name, value, tensors) for name, value in seen.stats.items()}
    about = {"format": FORMAT, "stats": layout, "recipe": _recipe(seen.map)}
    plain = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    draft = path.with_name(path.name + ".part")
    save_file(plain, draft, metadata={"regard": json.dumps(about)})
    draft.replace(path)


def load(path: str | Path) -> Parts:
    """Read the parts of an observation; raises MapError for other files and newer formats."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise MapError(f"{path} cannot be read as a saved observation: {error}.") from None
    if "regard" not in metadata:
        raise MapError(f"{path} is a safetensors file, but not an observation that regard saved.")
    with believing(path, MapError, "Save it again."):
        about = json.loads(metadata["regard"])
        if about["format"] > FORMAT:
            raise MapError(
                f"{path} has format {about['format']} and this regard reads up to {FORMAT}. Upgrade regard."
            )
        stats = {name: _unflatten(name, layout, tensors) for name, layout in about["stats"].items()}
        return Parts(tensors["out"], tensors["lse"], stats, _map(about["recipe"], tensors))


def _flatten(name: str, value: Any, tensors: dict[str, Tensor]) -> str:
    """Add a statistic's tensors to `tensors`; returns the layout that rebuilds the statistic."""
    if isinstance(value, Tensor):
        tensors[f"stats.{name}"] = value
        return "tensor"
    if hasattr(value, "_fields") and hasattr(regard.stats, type(value).__name__):
        for field, part in zip(value._fields, value, strict=True):
            _flatten(f"{name}.{field}", part, tensors)
        return type(value).__name__
    raise MapError(f"{name} is a {type(value).__name__}, which cannot be saved; observe without it to save.")


def _unflatten(name: str, layout: str, tensors: dict[str, Tensor]) -> Any:
    if layout == "tensor":
        return tensors[f"stats.{name}"]
    kind = getattr(regard.stats, layout)
    return kind(*(tensors[f"stats.{name}.{field}"] for field in kind._fields))


def _recipe_tensors(seen: AttentionMap) -> dict[str, Tensor]:
    p = seen.problem
    optional = {"sink": p.sink, "bias": p.scoring.bias}
    return {"q": p.q, "k": p.k, "v": p.v} | {name: x for name, x in optional.items() if isinstance(x, Tensor)}


def _recipe(seen: AttentionMap) -> dict[str, Any]:
    """Mask and scoring as JSON; raises MapError for functions."""
    p, scoring = seen.problem, seen.problem.scoring
    if scoring.score_mod is not None:
        raise MapError(
            "this map was made with a score_mod, and a function cannot be saved. Use bias= instead."
        )
    return {
        "mask": None if p.mask is None else p.mask.to_json(),
        "score": scoring.score.to_json(),
        "scale": scoring.scale,
        "softcap": scoring.softcap,
        "bias": scoring.bias.to_json() if isinstance(scoring.bias, Bias) else None,
    }


def _map(recipe: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionMap:
    options = Options(
        mask=None if recipe["mask"] is None else Mask.from_json(recipe["mask"]),
        scale=recipe["scale"],
        bias=tensors.get("bias") if recipe["bias"] is None else Bias.from_json(recipe["bias"]),
        softcap=recipe["softcap"],
        sink=tensors.get("sink"),
        score=Score.from_json(recipe["score"]),
    )
    problem = problem_of(tensors["q"], tensors["k"], tensors["v"], options)
    lse, wanted = tensors["lse"], problem.q.shape[:3]
    if lse.shape != wanted or lse.dtype != problem.accumulate:
        raise ShapeError(
            f"lse is {lse.dtype} of shape {tuple(lse.shape)}; q wants {problem.accumulate}, {tuple(wanted)}."
        )
    return AttentionMap(problem, lse)
