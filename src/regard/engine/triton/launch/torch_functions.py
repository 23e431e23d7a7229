"""Which torch functions only read metadata, and which can be recorded and called again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

__all__ = ["METADATA", "function_name", "is_recordable"]

# Functions that read a tensor's metadata, not its contents.
METADATA = {
    "data_ptr", "device", "dim", "dtype", "element_size", "is_contiguous", "is_cuda", "is_floating_point",
    "is_inference", "itemsize", "ndim", "numel", "requires_grad", "shape", "size", "stride", "_version",
    "__len__", "_set_grad_enabled",
}  # fmt: skip
# Functions that return tensors whose shape doesn't depend on the contents of their inputs.
RECORDABLE = {
    "add", "add_", "amax", "arange", "clamp", "clamp_", "clone", "contiguous", "copy_", "cumsum",
    "detach", "div", "div_", "empty", "empty_like", "exp", "expand", "flatten", "flip", "full", "gather",
    "gt", "log", "long", "masked_fill", "max", "maximum", "minimum", "mul", "mul_", "nan_to_num", "neg",
    "new_empty", "new_full", "new_zeros", "pad", "permute", "repeat_interleave", "reshape", "select",
    "sort", "split", "split_with_sizes", "squeeze", "stack", "sub", "sub_", "sum", "tensor", "to",
    "transpose", "true_divide", "unbind", "unflatten", "unsqueeze", "view", "where", "zero_", "zeros",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention", "__add__", "__eq__",
    "__ge__", "__getitem__", "__gt__", "__iadd__", "__isub__", "__itruediv__", "__le__", "__lt__",
    "__mul__", "__ne__", "__rsub__", "__setitem__", "__sub__", "__truediv__",
}  # fmt: skip


def is_recordable(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a call can be recorded: it returns tensors whose shape doesn't depend on their contents."""
    name = function_name(func)
    return name in RECORDABLE and not _depends_on_contents(name, args)


def function_name(func: Callable[..., Any]) -> str:
    """The name of a function as a TorchFunctionMode sees it; for a property, the property's name."""
    name = getattr(func, "__name__", "")
    return func.__self__.__name__ if name == "__get__" else name  # pyright: ignore[reportFunctionMemberAccess]


def _depends_on_contents(name: str, args: Sequence[Any]) -> bool:
    """Whether the result's shape may depend on contents: an index by a tensor, or `where` as a search."""
    if name == "where":
        return len(args) == 1
    return name in ("__getitem__", "__setitem__") and any(
        isinstance(x, Tensor) for x in (args[1] if isinstance(args[1], tuple) else args[1:2])
    )
