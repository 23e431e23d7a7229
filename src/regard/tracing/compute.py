"""Attention as in textbooks: one named step after another, not fused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.scoring import Place
from regard.masks import Mask
from regard.scores import soft_cap
from regard.tracing import sentences
from regard.tracing.projections import Projections
from regard.tracing.step import Step

__all__ = ["Recorder", "record_attention", "record_inputs", "record_projection"]

MAP = ("batch", "heads", "query", "key")


@dataclass
class Recorder:
    """Collects steps, and drops axes that the user's inputs don't have."""

    batched: bool
    headed: bool
    steps: list[Step] = field(default_factory=list)

    def add(self, name: str, formula: str, sentence: str, value: Tensor, axes: tuple[str, ...]) -> None:
        """Add a step; `value` has all axes, batch first. Inputs have no formula."""
        for axis, kept in (("heads", self.headed), ("batch", self.batched)):
            if axis in axes and not kept:
                value = value.select(axes.index(axis), 0)
                axes = tuple(a for a in axes if a != axis)
        # Copy, because the user's arrays may change after the call.
        formula = f"{name} = {formula}" if formula else name
        self.steps.append(Step(name, formula, sentence, value.clone(), axes))


def record_inputs(
    record: Recorder,
    q: Float[Tensor, "batch heads q dim"],
    k: Float[Tensor, "batch kv_heads k k_dim"],
    v: Float[Tensor, "batch kv_heads k v_dim"],
    made: Projections | None,
) -> None:
    """Record the token vectors, if any, and the queries, keys and values."""
    if made is not None:
        own = made.context is None
        axes = ("batch", "token" if own else "query", "model")
        record.add("input", "", sentences.about_input(made.x, asks=True, answers=own), made.x, axes)
        if made.context is not None:
            text = sentences.about_input(made.context, asks=False, answers=True)
            record.add("context", "", text, made.context, ("batch", "key", "model"))
    source = "input" if made is None or made.context is None else "context"
    group = q.shape[1] // k.shape[1]
    for name, value, axis in (("q", q, "query"), ("k", k, "key"), ("v", v, "key")):
        matrix = None if made is None else getattr(made, f"w_{name}")
        formula = "" if matrix is None else f"{'input' if name == 'q' else source} W_{name}"
        text = sentences.about_vectors(name, value, matrix, 1 if name == "q" else group)
        record.add(name, formula, text, value, ("batch", "heads", axis, "dim"))


def record_attention(
    record: Recorder, problem: Problem, mask: Mask | None, root: int | None
) -> Float[Tensor, "batch heads q v_dim"]:
    """Record the steps from scores to output. `mask` is the user's, because a problem drops one that hides
    nothing."""
    s = _scores(record, problem, root)
    s = _modified(record, problem, s)
    allowed = None
    if mask is not None:
        allowed = _allowed(mask, problem)
        s = torch.where(allowed, s, -math.inf)
        record.add("masked", f"{_last(record)}, −∞ where hidden", sentences.about_mask(mask, allowed), s, MAP)
    weights = _weights(record, problem, s)
    v = problem.v.repeat_interleave(problem.group, 1)
    out = _mix(weights, v, allowed)
    text = sentences.about_output(problem.k_len, v.shape[-1])
    record.add("output", "weights v", text, out, ("batch", "heads", "query", "dim"))
    return out


def record_projection(
    record: Recorder, out: Float[Tensor, "batch heads q v_dim"], w_o: Tensor | None
) -> None:
    """Record the joined heads, and the output projection."""
    heads, dim = out.shape[1], out.shape[3]
    joined = out.transpose(1, 2).flatten(2)  # (batch, q, heads * v_dim)
    axes = ("batch", "query", "model")
    if heads > 1:
        numbers = f"{heads} × {dim} = {heads * dim} numbers"
        text = f"The outputs of all heads stand side by side, {numbers} per token."
        record.add("heads concatenated", f"[head 0 … head {heads - 1}]", text, joined, axes)
    if w_o is not None:
        text = sentences.about_projection(w_o, heads)
        record.add("projected", f"{_last(record)} W_o", text, joined @ w_o, axes)


def _last(record: Recorder) -> str:
    return record.steps[-1].name


def _scores(record: Recorder, problem: Problem, root: int | None) -> Float[Tensor, "batch heads q k"]:
    """Raw scores, then scaled ones unless the scale is 1."""
    score, scale, dim = problem.scoring.score, problem.scoring.scale, problem.q.shape[-1]
    k = problem.k.repeat_interleave(problem.group, 1)
    s = score.tile(problem.q, k, *score.parameters())
    text = sentences.about_scores(score, problem.q_len, problem.k_len, dim)
    record.add("scores", sentences.score_formula(score), text, s, MAP)
    if scale == 1.0:
        return s
    formula, text = sentences.about_scale(scale, root)
    s = s * scale
    record.add("scaled", formula, text, s, MAP)
    return s


def _modified(record: Recorder, problem: Problem, s: Tensor) -> Float[Tensor, "batch heads q k"]:
    """Bias, soft cap and score_mod, each only if there is one."""
    scoring = problem.scoring
    b, h, q, k = (range(n) for n in s.shape)
    at = Place(b, h, q, k, problem.offset, s.device)
    bias = scoring.bias_tile(at)
    if bias is not None:
        s = s + bias.to(s.dtype)
        record.add("biased", f"{_last(record)} + bias", sentences.about_bias(bias), s, MAP)
    if scoring.softcap is not None:
        cap, before = scoring.softcap, s
        s = soft_cap(s, cap)
        c = sentences.short(cap)
        text = sentences.about_cap(cap, before, s)
        record.add("capped", f"{c} · tanh({_last(record)} / {c})", text, s, MAP)
    if scoring.score_mod is not None:
        before = s
        s = replace(scoring, bias=None, softcap=None).modify(s, None, at)
        text = sentences.about_modification(before, s)
        record.add("modified", f"score_mod({_last(record)})", text, s, MAP)
    return s


def _allowed(mask: Mask, problem: Problem) -> Bool[Tensor, "batch heads q k"]:
    bound = mask.bind(problem.batch, problem.heads)
    allowed = bound.dense(problem.q_len, problem.k_len, problem.q.device)
    return allowed.expand(problem.batch, problem.heads, problem.q_len, problem.k_len)


def _weights(record: Recorder, problem: Problem, s: Tensor) -> Float[Tensor, "batch heads q k"]:
    """Softmax over each row, the sink's logit among them if there is one."""
    logits = s
    if problem.sink is not None:
        sink = problem.sink.to(s.dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)
        logits = torch.cat([s, sink], dim=-1)
    # A row of only −∞ would divide 0 by 0; set its weights to 0.
    dead = (logits == -math.inf).all(-1, keepdim=True)
    shares = logits.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
    weights = shares[..., : s.shape[-1]]
    source = _last(record) + (", sink" if problem.sink is not None else "")
    text = sentences.about_weights(weights, sink=problem.sink is not None)
    record.add("weights", f"softmax({source})", text, weights, MAP)
    if problem.sink is not None:
        share = shares[..., -1]
        record.add("sink", "1 − Σ weights", sentences.about_sink(share), share, MAP[:3])
    return weights


def _mix(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Float[Tensor, "batch heads q v_dim"]:
    if allowed is None or bool(v.isfinite().all()):
        return weights @ v
    # Masked values may be garbage, and 0 × NaN is NaN: leave them out pair by pair.
    product = weights[..., None] * v[:, :, None]  # (batch, heads, q, k, v_dim)
    return torch.where(allowed[..., None], product, 0.0).sum(-2)
