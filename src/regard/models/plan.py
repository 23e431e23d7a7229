"""The object that takes the place of transformers' mask tensor: a description instead of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks import Mask
from regard.models.translate import Frame, translate

__all__ = ["MaskPlan", "plan_mask"]


@dataclass(frozen=True, eq=False)
class MaskPlan:
    """The mask of one forward pass as transformers describes it: a function of indices, and their offsets.

    Models pass it from layer to layer in place of their mask tensor. It supports what they do with a mask:
    `shape`, `to`, and slices from the start. Everything else would need the matrix, and raises MaskError.

    >>> from transformers.masking_utils import causal_mask_function
    >>> lengths = {"batch_size": 1, "q_length": 2, "kv_length": 5, "q_offset": 3}
    >>> plan = plan_mask(**lengths, mask_function=causal_mask_function)
    >>> plan.mask(2, 5)
    Causal()
    """

    function: Callable[..., Any]
    batch: int
    frame: Frame
    device: torch.device
    _made: dict[Frame, Mask | None] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.batch, 1, self.frame.q, self.frame.k))

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> torch.dtype:
        return torch.bool

    def dim(self) -> int:
        return 4

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def to(self, *args: Any, **kwargs: Any) -> MaskPlan:
        return self

    def contiguous(self) -> MaskPlan:
        return self

    def mask(self, q: int, k: int) -> Mask | None:
        """The mask for the first q queries and k keys of the plan; None if all pairs are allowed."""
        frame = replace(self.frame, q=q, k=k)
        if frame not in self._made:
            self._made[frame] = translate(self.function, frame)
        return self._made[frame]

    def over(self, frame: Frame) -> Mask | None:
        """The mask of other queries and keys of the same text; used after generation for all rows."""
        return translate(self.function, frame)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", function)
        raise MaskError(
            f"a layer of this model computes with its mask itself ({name}), "
            "outside transformers' AttentionInterface, and regard gives it a description, no matrix. "
            "Watch it with own_code=True, which leaves the model its own attention."
        )

    def __getitem__(self, index: Any) -> MaskPlan:
        parts = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in parts:
            at = parts.index(Ellipsis)
            parts[at : at + 1] = [slice(None)] * (5 - len(parts))
        parts += [slice(None)] * (4 - len(parts))
        sizes = list(self.shape)
        for axis, part in enumerate(parts):
            whole = isinstance(part, slice) and part.start in (None, 0) and part.step in (None, 1)
            if not whole or (axis < 2 and range(sizes[axis])[part] != range(sizes[axis])):
                raise MaskError(
                    f"a model indexed its attention mask with {index!r}; under regard the mask is a "
                    "description and takes only slices that start at the first query and key. Use 'eager' "
                    "for this model."
                )
            sizes[axis] = len(range(sizes[axis])[part])
        return replace(self, frame=replace(self.frame, q=sizes[2], k=sizes[3]))


def plan_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | MaskPlan | None = None,
    device: torch.device | str = "cpu",
    **unused: Any,
) -> MaskPlan:
    """The mask builder registered with transformers; the registry prescribes its signature."""
    from transformers import masking_utils as made

    # With a static cache, `generate` prepares masks in advance, and models then call this with a plan.
    if isinstance(attention_mask, MaskPlan):
        return attention_mask
    function = made.causal_mask_function if mask_function is None else mask_function
    padding = made.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        function = made.and_masks(function, made.padding_mask_function(padding.bool()))
    frame = Frame(int(q_length), int(kv_length), int(q_offset), int(kv_offset))
    return MaskPlan(function, int(batch_size), frame, torch.device(device))
