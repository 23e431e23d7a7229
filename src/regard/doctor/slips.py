"""The known mistakes as changes of the recipe, and the healthy recipes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from regard.doctor.recipe import Recipe, pattern

__all__ = ["ALONE", "SLIPS", "Slip", "healthy_forms", "pairs_of_slips"]


@dataclass(frozen=True)
class Slip:
    """A mistake: its code, its description, and its change of the recipe or the mask."""

    code: str
    words: str
    change: dict[str, Any] = field(default_factory=dict)
    pattern: str | None = None
    # Whether the roles of projections must be known, by name or by the order of arguments.
    named: bool = False

    def made(self, recipe: Recipe, allowed: Tensor) -> tuple[Recipe, Tensor] | None:
        """The recipe and mask with the mistake; None if it would change nothing."""
        n = allowed.shape[-1]
        if self.pattern is not None:
            causal = bool((allowed == pattern("causal", allowed.shape[-2], n)).all())
            if not causal and self.pattern != "inverted":
                return None
            allowed = ~allowed if self.pattern == "inverted" else pattern(self.pattern, allowed.shape[-2], n)
        about_rotary = "turned" in self.change or "rotary" in self.change
        if about_rotary and (recipe.rotary is None or ("rotary" in self.change and recipe.part != 1.0)):
            return None
        if self.change.get("mask") and bool(allowed.all()):
            return None
        return replace(recipe, **self.change), allowed


# More specific mistakes come first, because the first that gives the output is reported.
SLIPS = (
    Slip("missing-scale", "scale 1", {"scale": "none"}),
    Slip("scale-d-model", "scale 1/√d_model", {"scale": "d_model"}),
    Slip("scale-twice", "scale 1/d_k", {"scale": "twice"}),
    Slip("wrong-scale", "scale √d_k", {"scale": "multiplied"}),
    Slip("wrong-scale", "scale 1/√n", {"scale": "length"}),
    Slip("scale-after-softmax", "the scale applied after softmax", {"scale": "none", "after": "d_k"}),
    Slip("softmax-axis", "softmax over the queries", {"axis": -2}),
    Slip("softmax-axis", "softmax over the heads", {"axis": 1}),
    Slip("softmax-axis", "softmax over the batch", {"axis": 0}),
    Slip("softmax-axis", "softmax over all pairs at once", {"axis": (-2, -1)}),
    Slip("transposed-product", "scores of channels with channels", {"weights": "channels"}),
    Slip("no-softmax", "no softmax", {"weights": "none"}),
    Slip("no-softmax", "log_softmax in place of softmax", {"weights": "log"}),
    Slip("no-softmax", "e^score not divided by the sum of its row", {"weights": "exp"}),
    Slip("no-softmax", "scores divided by their sum in place of softmax", {"weights": "shares"}),
    Slip("softmax-twice", "softmax taken twice", {"weights": "twice"}),
    Slip("mask-after-softmax", "the mask multiplied in after softmax", {"mask": "after"}),
    Slip("mask-weak", "forbidden scores set to 0", {"mask": "zero"}),
    Slip("mask-weak", "the mask added as zeros and ones", {"mask": "added"}),
    Slip("mask-weak", "forbidden scores set to 1", {"mask": "one"}),
    Slip("mask-weak", "forbidden scores set to -1", {"mask": "minus one"}),
    Slip("cannot-see-itself", "a causal mask without its diagonal", pattern="strict"),
    Slip("sees-one-ahead", "a causal mask with one diagonal too many", pattern="ahead"),
    Slip("mask-inverted", "the mask inverted", pattern="inverted"),
    Slip("heads-mixed", "heads split by a view without transpose", {"mixed": "qkv"}),
    Slip("heads-mixed", "heads joined by a reshape without transpose", {"mixed": "o"}),
    Slip("heads-mixed", "heads split and joined without transpose", {"mixed": "qkvo"}),
    Slip("heads-mixed", "heads joined as channels of pixels without transpose", {"mixed": "pixels"}),
    *(
        Slip("heads-mixed", f"heads of {part} split by a view without transpose", {"mixed": part})
        for part in ("q", "k", "v", "qk", "kv")
    ),
    Slip("gqa-order", "key and value heads tiled", {"tiled": "kv"}),
    Slip("gqa-order", "key heads tiled", {"tiled": "k"}),
    Slip("gqa-order", "value heads tiled", {"tiled": "v"}),
    Slip("rotary-on-values", "rotary positions on v too", {"turned": "qkv"}),
    Slip("rotary-one-side", "rotary positions on q only", {"turned": "q"}),
    Slip("rotary-one-side", "rotary positions on k only", {"turned": "k"}),
    Slip("rotary-mixed", "angles of pairs, rotation of halves", {"rotary": "mixed"}),
    Slip("rotary-mixed", "angles of halves, rotation of pairs", {"rotary": "mixed-pairs"}),
    Slip("softmax-dtype", "softmax in float16", {"softmax": torch.float16}),
    Slip("softmax-dtype", "softmax in bfloat16", {"softmax": torch.bfloat16}),
    Slip("parts-swapped", "k taken for v", {"order": "qkk"}, named=True),
    Slip("parts-swapped", "v taken for k", {"order": "qvv"}, named=True),
    Slip("parts-swapped", "k and v exchanged", {"order": "qvk"}, named=True),
    Slip("parts-swapped", "q and k exchanged", {"order": "kqv"}, named=True),
    Slip("parts-swapped", "q taken for k", {"order": "qqv"}, named=True),
    Slip("parts-swapped", "k taken for q", {"order": "kkv"}, named=True),
    Slip("parts-swapped", "q taken for v", {"order": "qkq"}, named=True),
    Slip("scores-unused", "the plain average of v", {"weights": "uniform"}),
    Slip("scores-unused", "v itself", {"weights": "own"}),
    *(
        Slip("normalised-inside", f"{words} {said}", {"norm": norm, "normed": normed})
        for norm, said in (("unit", "scaled to length 1"), ("layer", "layer-normed"), ("rms", "RMS-normed"))
        for words, normed in (
            ("q and k", "qk"),
            ("q", "q"),
            ("k", "k"),
            ("v", "v"),
            ("the heads' output", "o"),
        )
    ),
)
# Mistakes that often occur in pairs, and whose recipes don't hide each other.
ALONE = {
    "softmax-dtype",
    "gqa-order",
    "parts-swapped",
    "scores-unused",
    "normalised-inside",
    "rotary-one-side",
}


def pairs_of_slips() -> Iterator[tuple[Slip, ...]]:
    """Pairs of mistakes that change different settings."""
    often = [slip for slip in SLIPS if slip.code not in ALONE]
    for pair in combinations(often, 2):
        if not pair[0].change.keys() & pair[1].change.keys() and not all(one.pattern for one in pair):
            yield pair


def healthy_forms(positional: bool, normed: bool) -> list[Recipe]:
    """The healthy recipes: plain, with the usual rotary positions, or with normalised q and k."""
    bases = [Recipe(), Recipe(rotary="halves"), Recipe(rotary="interleaved")]
    if positional:
        bases += [
            Recipe(rotary=how, base=base, part=part, turn=turn)
            for turn, base, part, how in product(
                (1.0, -1.0), (1e4, 5e5, 1e6), (1.0, 0.5, 0.25), ("halves", "interleaved")
            )
            if (part, turn, base) != (1.0, 1.0, 1e4)
        ]
    if not normed:
        return bases
    kinds = ("layer", "rms", "wide layer", "wide rms")
    return bases + [replace(base, norm=norm) for norm in kinds for base in bases]
