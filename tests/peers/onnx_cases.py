"""ONNX's own cases of its `Attention` and `FlexAttention` operators, in regard's words.

They are loaded from the `onnx` package, which makes the inputs and the wanted outputs when it is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from regard.masks import Causal, Dense, Mask, Padding, Where, Window

__all__ = ["CASES", "TWINS", "Case"]

PREFIX = "test_"
# Each case ships twice: as the operator, and "expanded" into a graph of simpler operators.
EXPANDED = "_expanded"
ENDLESS = 1 << 30


@dataclass(frozen=True)
class Case:
    """One case: the operator's inputs, attributes and wanted outputs, by ONNX's names."""

    name: str
    inputs: dict[str, Tensor]
    attributes: dict[str, Any]
    wanted: dict[str, Tensor]
    graphs: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def q(self) -> Tensor:
        return self._split("Q", "q_num_heads")

    @property
    def past(self) -> tuple[Tensor, Tensor] | None:
        """The cached keys and values, if the case has any."""
        return (self.inputs["past_key"], self.inputs["past_value"]) if "past_key" in self.inputs else None

    @property
    def new(self) -> tuple[Tensor, Tensor]:
        """The keys and values that come after the cached ones."""
        return self._split("K", "kv_num_heads"), self._split("V", "kv_num_heads")

    @property
    def kv(self) -> tuple[Tensor, Tensor]:
        """All keys and values: those of the past, then the new ones."""
        if self.past is None:
            return self.new
        k, v = (torch.cat(pair, 2) for pair in zip(self.past, self.new, strict=True))
        return k, v

    @property
    def softcap(self) -> float | None:
        return self.attributes.get("softcap") or None

    @property
    def scale(self) -> float | None:
        return self.attributes.get("scale")

    @property
    def bias(self) -> Tensor | None:
        """A float mask, which is added; ONNX hides the keys that a short one does not reach."""
        mask = self.inputs.get("attn_mask")
        return None if mask is None or mask.dtype == torch.bool else self._reaching(mask, -torch.inf)

    @property
    def mask(self) -> Mask | None:
        """Everything that hides keys, joined."""
        parts = [*self._causal(), *self._window(), *self._valid(), *self._flags()]
        joined = parts[0] if parts else None
        for part in parts[1:]:
            joined = joined & part
        return joined

    def options(self) -> dict[str, Any]:
        """What `regard.attention` takes beside q, k and v.

        ONNX caps before it adds the mask and regard caps after: with a cap, `score_mod` adds the mask.
        """
        options: dict[str, Any] = {"mask": self.mask, "scale": self.scale, "softcap": self.softcap}
        if self.graphs:
            graph = self.graphs["score_mod"]
            return options | {"score_mod": lambda score, b, h, q, k: graph(score)}
        bias = self.bias
        if bias is None or self.softcap is None:
            return options | {"bias": bias}
        full = bias.expand(*self.q.shape[:3], self.kv[0].shape[2])
        first = full.shape[3] - full.shape[2]
        return options | {"score_mod": lambda score, b, h, q, k: score + full[b, h, q - first, k]}

    def joined_heads(self, out: Tensor) -> Tensor:
        """The output in the layout of the case's own inputs."""
        return out if self.inputs["Q"].ndim == 4 else out.transpose(1, 2).flatten(2)

    def _split(self, name: str, heads: str) -> Tensor:
        x = self.inputs[name]
        return x if x.ndim == 4 else x.unflatten(2, (self.attributes[heads], -1)).transpose(1, 2)

    def _reaching(self, mask: Tensor, filler: float) -> Tensor:
        return torch.nn.functional.pad(mask, (0, self.kv[0].shape[2] - mask.shape[-1]), value=filler)

    @property
    def _offset(self) -> int | Tensor:
        """How many keys come before the first query: one number, or one for each row of the batch."""
        if "nonpad_kv_seqlen" in self.inputs:
            return self.inputs["nonpad_kv_seqlen"] - self.q.shape[2]
        return 0 if self.past is None else self.past[0].shape[2]

    def _causal(self) -> list[Mask]:
        return self._within(ENDLESS, 0) if self.attributes.get("is_causal") else []

    def _window(self) -> list[Mask]:
        sizes = [self.attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
        left, right = (ENDLESS if size < 0 else size for size in sizes)
        return [] if min(left, right) == ENDLESS else self._within(left, right)

    def _within(self, left: int, right: int) -> list[Mask]:
        """Key j where row i stands at i + offset and sees so many keys to the left and to the right."""
        offset = self._offset
        # regard counts the first row from here.
        first = self.kv[0].shape[2] - self.q.shape[2]
        if isinstance(offset, int) and offset == first and left < ENDLESS:
            return [Window(left + 1, right + 1)]
        if isinstance(offset, int) and left == ENDLESS:
            return [Causal(shift=offset - first + right)]
        moved = torch.as_tensor(offset).view(-1) - first

        def near(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            distance = q + (moved[b] if len(moved) > 1 else moved) - k
            return (distance <= left) & (-distance <= right)

        return [Where(near)]

    def _valid(self) -> list[Mask]:
        if "nonpad_kv_seqlen" not in self.inputs:
            return []
        return [Padding.from_lengths(self.inputs["nonpad_kv_seqlen"].tolist(), self.kv[0].shape[2])]

    def _flags(self) -> list[Mask]:
        mask = self.inputs.get("attn_mask")
        if mask is None or mask.dtype != torch.bool:
            return []
        flags = self._reaching(mask, False)
        if flags.ndim == 1:
            return [Padding(flags)]
        lead = (1,) * (4 - flags.ndim) if flags.ndim > 2 else ()
        return [Dense(flags.view(*lead, *flags.shape))]


def _tensor(array: Any) -> Tensor:
    # NumPy's bfloat16 is a package's own type, which PyTorch does not know: its bits are the same.
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).astype(np.int32)).to(torch.int16).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _applied(graph: onnx.GraphProto, opset: list[onnx.OperatorSetIdProto]) -> Callable[[Tensor], Tensor]:
    """A graph of one input and one output as a function, computed by ONNX's reference."""
    model = onnx.helper.make_model(graph, opset_imports=[o for o in opset if not o.domain])
    reference, name = ReferenceEvaluator(model), graph.input[0].name
    return lambda score: _tensor(reference.run(None, {name: score.numpy()})[0])


def _named(names: Any, arrays: Any) -> dict[str, Tensor]:
    return dict(zip([name for name in names if name], map(_tensor, arrays), strict=True))


def _case(test: Any) -> Case:
    node = test.model.graph.node[0]
    (inputs, outputs), *others = test.data_sets
    if others or len(test.model.graph.node) != 1:
        raise ValueError(f"{test.name} is no longer one node with one set of numbers.")
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    graphs = {
        name: _applied(value, list(test.model.opset_import))
        for name, value in values.items()
        if isinstance(value, onnx.GraphProto)
    }
    attributes = {name: value for name, value in values.items() if name not in graphs}
    wanted = _named(node.output, outputs)
    return Case(
        test.name.removeprefix(PREFIX),
        _named(node.input, inputs),
        attributes,
        wanted,
        graphs,
    )


def _shipped() -> dict[str, Any]:
    # Only these two: the package would otherwise make the cases of two hundred operators.
    for module in ("attention", "flexattention"):
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    from onnx.backend.test.case.node import _NodeTestCases

    return {test.name: test for test in _NodeTestCases if "attention" in test.name}


def _twin(name: str) -> str:
    """The name of the case that an expanded one repeats, number for number."""
    original = name.partition(EXPANDED)[0]
    (theirs,), (ours,) = _SHIPPED[name].data_sets, _SHIPPED[original].data_sets
    for one, other in zip([*theirs[0], *theirs[1]], [*ours[0], *ours[1]], strict=True):
        np.testing.assert_array_equal(one, other)
    return original.removeprefix(PREFIX)


_SHIPPED = _shipped()
CASES = {case.name: case for case in (_case(t) for name, t in _SHIPPED.items() if EXPANDED not in name)}
TWINS = {name.removeprefix(PREFIX): _twin(name) for name in _SHIPPED if EXPANDED in name}
