"""The forms of mask arguments, and the search for the form that an attention takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.doctor.influence import CLOSE
from regard.doctor.recipe import pattern

__all__ = ["MEANINGS", "WEAK", "MaskForm", "find_form", "forms", "holed"]

MEANINGS = {
    "allowed": "bool, True may attend",
    "blocked": "bool, True blocks",
    "additive": "added to the scores",
    "ones": "numbers, 1 may attend",
    "zeros": "numbers, 1 blocks",
    "lengths": "the number of tokens that count",
}
ROWS = ("b1qk", "qk", "bqk", "bhqk", "1qk")
KEYS = ("bk", "b11k", "b1k", "k")


@dataclass(frozen=True)
class MaskForm:
    """A mask argument: the parameter, its axes, and the meaning of its values."""

    name: str
    axes: str
    meaning: str

    @property
    def by_key(self) -> bool:
        """Whether the mask is the same for all queries."""
        return self.axes in KEYS or self.meaning == "lengths"

    @property
    def words(self) -> str:
        """The form in words."""
        said = MEANINGS[self.meaning] + (", by key" if self.by_key else "")
        return f"{self.name}: {said}"

    def build(self, allowed: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
        """The argument for a `(batch, 1, q, k)` mask.

        >>> MaskForm("mask", "qk", "blocked").build(pattern("causal", 2, 2)[None, None], 1, torch.float32)
        tensor([[False,  True],
                [False, False]])
        """
        if self.meaning == "lengths":
            return allowed[:, 0, -1].sum(-1)
        views: dict[str, Callable[[], Tensor]] = {
            "b1qk": lambda: allowed, "qk": lambda: allowed[0, 0], "bqk": lambda: allowed[:, 0],
            "bhqk": lambda: allowed.expand(-1, heads, -1, -1), "1qk": lambda: allowed[:1, 0],
            "bk": lambda: allowed[:, 0, -1], "b11k": lambda: allowed[:, :, -1:],
            "b1k": lambda: allowed[:, 0, -1:], "k": lambda: allowed[0, 0, -1],
        }  # fmt: skip
        mask = views[self.axes]().contiguous()
        if self.meaning in ("allowed", "blocked"):
            return mask if self.meaning == "allowed" else ~mask
        if self.meaning in ("ones", "zeros"):
            return (mask if self.meaning == "ones" else ~mask).to(dtype)
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)


def forms(name: str, role: str, wanted: str | None) -> Iterator[MaskForm]:
    """Every form to try for a parameter, the likeliest first."""
    if role == "lengths":
        yield MaskForm(name, "bk", "lengths")
        return
    meanings: Sequence[str] = ("allowed", "additive", "blocked", "ones", "zeros")
    if "pad" in name.lower():
        meanings = ("blocked", "allowed", "zeros", "ones", "additive")
    elif "bias" in name.lower():
        meanings = ("additive", "allowed", "blocked")
    if wanted:
        same = {"allowed": ("allowed", "ones"), "blocked": ("blocked", "zeros")}
        meanings = same.get(wanted, (wanted,))
    groups = (KEYS, ROWS) if "pad" in name.lower() else (ROWS, KEYS)
    for axes in groups:
        yield from (MaskForm(name, one, meaning) for meaning in meanings for one in axes)


def holed(form: MaskForm, batch: int, q: int, k: int) -> Tensor:
    """A test mask that a form can express, the same for every sequence: causal with a hole, or without one
    key.

    >>> holed(MaskForm("mask", "qk", "allowed"), 1, 4, 4)[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]
    """
    if form.by_key:
        allowed = pattern("full", q, k).clone()
        allowed[:, k // 2 if form.meaning != "lengths" else slice(-2, None)] = False
    else:
        allowed = pattern("causal", q, k).clone()
        allowed[q // 2 + 1 :, 1] = False
    return allowed.expand(batch, 1, q, k).clone()


# A weight after adding -10 to its score is below this.
WEAK = 1e-2
Sees = Callable[[MaskForm, Tensor, float], Tensor]


def find_form(
    candidates: Iterator[MaskForm], sees: Sees, batch: int, n: int, own: bool
) -> tuple[MaskForm | None, list[MaskForm]]:
    """The form under which exactly the allowed keys affect each query, and all forms that can be passed.

    `own` says whether to test a query's effect on itself: in a module a token always affects its own output.
    """
    possible = []
    rows = torch.ones(n, n, dtype=torch.bool) if own else ~torch.eye(n, dtype=torch.bool)

    def holds(form: MaskForm, tolerance: float) -> bool:
        allowed = holed(form, batch, n, n)
        return torch.equal(sees(form, allowed, tolerance) & rows, allowed[0, 0] & rows)

    for form in candidates:
        try:
            exact = holds(form, CLOSE)
        except Exception:
            continue
        possible.append(form)
        if exact:
            return _of_ones(form, holds), possible
    return None, possible


def _of_ones(form: MaskForm, holds: Callable[[MaskForm, float], bool]) -> MaskForm:
    """Whether the mask is of ones and zeros: code such as (1 - mask) * -10 also seems to work with -inf."""
    ones = replace(form, meaning="ones")
    try:
        return ones if form.meaning == "additive" and holds(ones, WEAK) else form
    except Exception:
        return form
