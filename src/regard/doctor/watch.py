"""Records the products of inputs with weights that a module computes, and perturbs their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Product", "Watch", "light"]

aten = torch.ops.aten
# The argument indices of the two factors, by operation.
FACTORS = {
    aten.mm: (0, 1), aten.bmm: (0, 1), aten.mv: (0, 1), aten.addmm: (1, 2), aten.baddbmm: (1, 2),
    aten.addmv: (1, 2), aten.convolution: (0, 1), aten.linear: (0, 1),
    aten.mkldnn_convolution: (0, 1),
}  # fmt: skip
CONVOLUTIONS = (aten.convolution, aten.mkldnn_convolution)
SUMS = (aten.add, aten.add_)
COPIES = (aten.clone,)
MULTIPLES = (aten.mul, aten.div, aten.mul_, aten.div_)


@dataclass
class Product:
    """One product of a tensor that depends on the input with a weight."""

    names: frozenset[str]
    value: Tensor
    operand: Tensor
    # Earlier products that the operand depends on.
    parents: frozenset[int]
    # The product that it is added to, as with LoRA.
    absorbed: bool = False


@dataclass
class _Seen:
    """Facts about one storage."""

    tainted: bool = False
    names: frozenset[str] = frozenset()
    products: frozenset[int] = frozenset()
    whole: int | None = None
    multiple: int | None = None
    keep: list[Tensor] = field(default_factory=list)


class Watch(TorchDispatchMode):
    """Records every product of the input with a weight, in order; adds `changes` to their results.

    >>> layer, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
    >>> with torch.no_grad(), Watch([x], dict(layer.named_parameters())) as seen:
    ...     y = layer(x)
    >>> sorted(seen.products[0].names), seen.products[0].value.shape
    (['weight'], torch.Size([1, 2]))
    """

    def __init__(
        self,
        inputs: Iterable[Tensor],
        weights: Mapping[str, Tensor],
        changes: Mapping[int, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.changes = changes or {}
        self.products: list[Product] = []
        self._storages: dict[int, _Seen] = {}
        self.used: set[str] = set()
        for name, weight in weights.items():
            if not is_lazy(weight):
                self._of(weight).names |= {name}
        for x in inputs:
            self._of(x).tainted = True

    def _of(self, x: Tensor) -> _Seen:
        seen = self._storages.setdefault(x.untyped_storage().data_ptr(), _Seen())
        # Keep the tensor alive, so that no other gets the same address.
        seen.keep.append(x)
        return seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [self._of(x) for x in tree_leaves((args, kwargs)) if _holds(x)]
        products = frozenset().union(*(seen.products for seen in given))
        names = frozenset().union(*(seen.names for seen in given))
        tainted = any(seen.tainted for seen in given)
        if tainted:
            self.used |= names
        for x in tree_leaves(out):
            if _holds(x):
                seen = self._of(x)
                seen.tainted |= tainted
                seen.products |= products
                if not tainted:
                    seen.names |= names
        if tainted and isinstance(out, Tensor):
            packet = getattr(func, "overloadpacket", None)
            if packet in FACTORS:
                self._product(out, [args[place] for place in FACTORS[packet]], packet in CONVOLUTIONS)
            elif packet in SUMS:
                self._sum(out, args)
                if packet is aten.add_ and isinstance(args[1], Tensor):
                    self._part(out, args[1])
            elif packet in COPIES and out.is_contiguous() and out.stride() == args[0].stride():
                self._of(out).whole = self._whole(args[0])
            elif packet in MULTIPLES and not isinstance(args[1], Tensor) and _holds(args[0]):
                self._of(out).multiple = self._whole(args[0])
        return out

    def _product(self, out: Tensor, factors: list[Tensor], convolved: bool) -> None:
        left, right = (self._of(x) for x in factors)
        if left.tainted == right.tainted:
            return
        operand, weight = (factors[0], right) if left.tainted else (factors[1], left)
        if not weight.names:
            return
        index, source = len(self.products), self._of(operand)
        if index in self.changes:
            out.add_(self.changes[index].reshape(out.shape))
        if source.whole is not None:
            self.products[source.whole].absorbed = True
        # A convolution has channels first: store a row per token, as for other products.
        rows = operand.movedim(1, -1) if convolved else operand
        self.products.append(Product(weight.names, out.clone(), rows.clone(), source.products))
        made = self._of(out)
        made.whole, made.products = index, made.products | {index}

    def _whole(self, x: Any) -> int | None:
        """The product that a tensor contains entirely, not only a part of."""
        if not _holds(x):
            return None
        whole = self._of(x).whole
        return whole if whole is not None and self.products[whole].value.numel() == x.numel() else None

    def _part(self, out: Tensor, other: Tensor) -> None:
        """Note a product that is added in place to some columns of another, as LoRA does on a fused
        projection."""
        whole, second = self._of(out).whole, self._whole(other)
        if whole is None or second is None or second == whole:
            return
        value = self.products[whole].value
        if (
            out.numel() < value.numel()
            and value.numel() * out.element_size() == out.untyped_storage().nbytes()
        ):
            self.products[second].absorbed = True
            self.products[whole].value = out.as_strided(value.shape, value.stride(), 0).clone()

    def _sum(self, out: Tensor, args: Any) -> None:
        """Merge a bias, or a second product that is added, with the first product."""
        wholes = [self._whole(x) for x in args[:2]]
        multiples = [self._of(x).multiple if _holds(x) else None for x in args[:2]]
        for mine, theirs in ((0, 1), (1, 0)):
            whole, other = wholes[mine], args[theirs]
            if whole is None or not _holds(other):
                continue
            second = wholes[theirs] if wholes[theirs] is not None else multiples[theirs]
            if second is not None and second != whole and other.shape == out.shape:
                first, last = min(whole, second), max(whole, second)
                self.products[last].absorbed = True
                whole = first
            elif self._of(other).tainted or not self._of(other).names:
                continue
            self.products[whole].value = out.clone()
            self._of(out).whole = whole
            return


def _holds(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device.type != "meta" and x.layout == torch.strided


def light(kind: type[TorchDispatchMode]) -> None:
    """Keep PyTorch from importing its compiler for a mode, which takes seconds."""
    inner = getattr(kind.__torch_dispatch__, "__wrapped__", None)
    if inner is not None:
        setattr(inner, "__dynamo_disable", inner)


light(Watch)
