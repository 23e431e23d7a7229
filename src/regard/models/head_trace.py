"""The trace of one head of a real model, from the inputs of its layer to the layer's output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from regard.engine.problem import Problem
from regard.models.record import record
from regard.models.recording import Recording
from regard.tracing import Step, Trace, trace

__all__ = ["head_trace"]

# The tolerance for two computations of the same numbers, relative to the largest.
CLOSE = 1e-3


def head_trace(
    model: Any, text: str, recording: Recording, layer: int, head: int, tokens: list[str]
) -> Trace:
    """Every step of one head on a text that `recording` holds: x, W_Q, W_K, W_V, positions, heads and W_O.

    Projections are identified by the numbers they compute, not by their names, so fused ones are found too.
    Steps that are not found are left out.

    >>> from regard.models import bundled
    >>> text = "The cat sat"
    >>> found = head_trace(bundled(), text, record(bundled(), text), 4, 1, ["^", "The", "cat", "sat"])
    >>> found.names[:5], found.names[-2:]
    (['input', 'q projected', 'k projected', 'q', 'k'], ['heads concatenated', 'projected'])
    """
    problem = recording.maps[layer].problem
    made = _attended(problem, head, tokens)
    calls = _calls(model, text, recording.layers[layer].name)
    before = _before(calls, problem, head)
    after = _after(calls, problem, recording, layer)
    matrices = {**before.matrices, **after.matrices}
    q, k, v, *rest = made.steps
    given = (*before.steps, before.made("q", q), before.made("k", k), before.made("v", v))
    # The trace has this head only, as head 0, with its columns of the matrices.
    recipe = replace(made.recipe, matrices={name: x.cpu() for name, x in matrices.items()})
    return replace(made, steps=(*given, *rest, *after.steps), recipe=recipe)


def _attended(problem: Problem, head: int, tokens: list[str]) -> Trace:
    """The attention steps of one head: scores, scale, bias, mask, weights and output."""
    key_head, scoring, bias = head // problem.group, problem.scoring, problem.scoring.bias
    if isinstance(bias, Tensor):
        bias = bias[0, head if bias.shape[1] > 1 else 0]
    return trace(
        problem.q[0, head],
        problem.k[0, key_head],
        problem.v[0, key_head],
        problem.mask,
        tokens=tokens,
        scale=scoring.scale,
        bias=bias,
        softcap=scoring.softcap,
        sink=None if problem.sink is None else problem.sink[head : head + 1],
        score_mod=scoring.score_mod,
    )


@dataclass(frozen=True)
class _Call:
    """One call of a linear module: its input, its output, and its matrix as (in, out)."""

    given: Float[Tensor, "n in"]
    made: Float[Tensor, "n out"]
    matrix: Float[Tensor, "in out"]
    bias: Float[Tensor, "out"] | None


def _calls(model: Any, text: str, name: str) -> list[_Call]:
    """Run the model again and record the calls of the linear modules within one attention module."""
    runner = model[0] if isinstance(model, tuple) else model
    seen: list[_Call] = []
    with _hooked(runner.get_submodule(name), seen):
        record(model, text, stats=(), keep_maps=False)
    return seen


@contextmanager
def _hooked(module: nn.Module, seen: list[_Call]) -> Iterator[None]:
    def keep(part: nn.Module, given: Any, made: Any) -> None:
        weight = getattr(part, "weight", None)
        if not isinstance(made, Tensor) or not isinstance(weight, Tensor) or weight.ndim != 2:
            return
        x, y = given[0].detach().flatten(0, -2).double(), made.detach().flatten(0, -2).double()
        bias = getattr(part, "bias", None)
        bias = None if bias is None else bias.detach().double()
        # Linear stores its matrix as (out, in), Conv1D as (in, out): the output shape tells which.
        for matrix in (weight.detach().double().T, weight.detach().double()):
            if matrix.shape == (x.shape[1], y.shape[1]) and _alike(
                x @ matrix + (0 if bias is None else bias), y
            ):
                seen.append(_Call(x, y, matrix, bias))
                return

    hooks = [part.register_forward_hook(keep) for part in module.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class _Around:
    """The steps before or after attention, and the matrices used to show their arithmetic."""

    steps: tuple[Step, ...] = ()
    matrices: dict[str, Tensor] = field(default_factory=dict)
    formulas: dict[str, str] = field(default_factory=dict)

    def made(self, name: str, step: Step) -> Step:
        """A step of q, k or v with a note that says which step it was computed from."""
        formula = self.formulas.get(name)
        if formula is None:
            return step
        sentence = SENTENCES["turned" if "projected" in formula else name]
        return replace(step, formula=f"{name} = {formula}", sentence=sentence)


SENTENCES = {
    "q": "Each vector times W_q gives a query: what the token is looking for.",
    "k": "Each vector times W_k gives a key: what the token can be found by.",
    "v": "Each vector times W_v gives a value: what the token hands over when it is found.",
    "turned": "Positions come in here: pairs of numbers are turned by an angle that grows with the place in "
    "the text, so that scores depend on distances. Lengths stay as they are.",
}


def _before(calls: list[_Call], problem: Problem, head: int) -> _Around:
    steps: list[Step] = []
    matrices: dict[str, Tensor] = {}
    formulas: dict[str, str] = {}
    source = None
    for name, x, index in (
        ("q", problem.q, head),
        ("k", problem.k, head // problem.group),
        ("v", problem.v, head // problem.group),
    ):
        wanted = x[0, index].double().cpu()
        found = _found(calls, wanted)
        if found is None:
            continue
        call, at, same = found
        width = wanted.shape[1]
        source = call.given if source is None else source
        matrices[f"w_{name}"] = call.matrix[:, at : at + width]
        bias = "" if call.bias is None else f" + b_{name}"
        if call.bias is not None:
            matrices[f"b_{name}"] = call.bias[at : at + width]
        if same:
            formulas[name] = f"input W_{name}{bias}"
            continue
        formulas[name] = f"{name} projected, turned by position"
        axis = "query" if name == "q" else "key"
        value = call.made[:, at : at + width]
        formula = f"{name} projected = input W_{name}{bias}"
        steps.append(Step(f"{name} projected", formula, SENTENCES[name], value, (axis, "dim")))
    if source is not None:
        length, dim = source.shape
        tokens = "1 token," if length == 1 else f"{length} tokens, each"
        text = f"{tokens} a vector of {dim} numbers: what the layers before hand to this one."
        steps.insert(0, Step("input", "input", text, source, ("token", "model")))
    return _Around(tuple(steps), matrices, formulas)


def _found(calls: list[_Call], wanted: Float[Tensor, "n dim"]) -> tuple[_Call, int, bool] | None:
    """The call that computed these numbers, their first column in its output, and whether they are equal; if
    not, only their lengths are."""
    width = wanted.shape[1]
    for same in (True, False):
        for call in calls:
            made = call.made.cpu()
            if made.shape[0] != wanted.shape[0] or made.shape[1] < width:
                continue
            for at in range(0, made.shape[1] - width + 1, width):
                block = made[:, at : at + width]
                if _alike(block, wanted) if same else _alike(block.norm(dim=-1), wanted.norm(dim=-1)):
                    return call, at, same
    return None


def _after(calls: list[_Call], problem: Problem, recording: Recording, layer: int) -> _Around:
    rows = recording.maps[layer][0].double()  # (heads, q, k)
    v = problem.v[0].repeat_interleave(problem.group, 0).double()
    out = (rows.cpu() @ v.cpu()).transpose(0, 1).flatten(1)  # (q, heads * v_dim)
    for call in calls:
        if call.given.shape == out.shape and _alike(call.given.cpu(), out):
            heads, width = rows.shape[0], out.shape[1] // rows.shape[0]
            numbers = f"{heads} × {width} = {out.shape[1]} numbers"
            joined = f"The outputs of all heads stand side by side, {numbers} per token."
            size = f"{call.matrix.shape[0]} × {call.matrix.shape[1]}"
            mixed = (
                f"Times W_o ({size}): this is where the heads meet; the layer adds it to the token's vector."
            )
            bias = "" if call.bias is None else " + b_o"
            matrices = {"w_o": call.matrix} | ({} if call.bias is None else {"b_o": call.bias})
            axes, last = ("query", "model"), f"projected = heads concatenated W_o{bias}"
            first = f"heads concatenated = [head 0 … head {heads - 1}]"
            steps = (
                Step("heads concatenated", first, joined, out, axes),
                Step("projected", last, mixed, call.made, axes),
            )
            return _Around(steps, matrices)
    return _Around()


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= CLOSE * b.abs().max().clamp(min=1e-6))
