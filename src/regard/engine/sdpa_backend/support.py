"""Which problems PyTorch's fused kernels can run."""

from __future__ import annotations

import torch

from regard.engine.few_rows import is_half
from regard.engine.finite import finite
from regard.engine.problem import Problem, asked_once
from regard.masks import Causal

__all__ = ["is_plain", "needs_finite", "refusal", "wants_float32"]

# The most float32 numbers that a vector register holds.
LANES = 16


def refusal(problem: Problem) -> str | None:
    """Why PyTorch's kernels cannot run a problem, or None if they can."""
    scoring = problem.scoring
    if not scoring.score.is_dot:
        return f"PyTorch's kernels compute dot products, not {type(scoring.score).__name__}"
    if not scoring.fusable:
        return "PyTorch's kernels know no soft cap, score_mod, structured or trainable bias"
    if problem.dropout:
        return "dropout would make PyTorch build the whole map"
    if problem.q.shape[-1] != problem.v.shape[-1]:
        return f"q has dim {problem.q.shape[-1]}, v has {problem.v.shape[-1]}; PyTorch's kernel wants one dim"
    if 0 in (problem.batch, problem.q_len, problem.k_len):
        return "a length is zero"
    if problem.q.device.type != "cpu" and (not is_plain(problem) or problem.sink is not None):
        return "off the CPU only unmasked and causal calls go to PyTorch"
    if _leaks(problem):
        return (
            "q, k or v hold NaN, inf or numbers whose products overflow, and PyTorch's kernels would let "
            "those through the mask, or return zeros for a few keys and in half precision"
        )
    return None


def wants_float32(problem: Problem) -> bool:
    """Whether a half-precision problem should be computed in float32 on the CPU.

    PyTorch's half-precision kernel approximates exp: its log-sum-exp has an error of 6e-5, and so would every
    weight of a map. It accumulates gradients in half precision. And without bfloat16 instructions it is not
    faster; its backward takes 2 to 20 times as long.
    """
    return problem.q.device.type == "cpu" and is_half(problem)


@asked_once
def is_plain(problem: Problem) -> bool:
    """Whether one call of PyTorch's own function computes it: no mask, or PyTorch's causal mask."""
    # The kernel scales after masking with -inf, so a scale of 0 or less would undo the mask.
    causal = problem.scoring.scale > 0 and _is_causal(problem)
    return problem.scoring.linear and (problem.mask is None or causal)


def _is_causal(problem: Problem) -> bool:
    return type(problem.mask) is Causal and problem.mask.shift == -problem.offset


def needs_finite(masked: bool, k_len: int, dtype: torch.dtype) -> bool:
    """Whether PyTorch's CPU kernel is wrong about NaN and infinite scores in such a call.

    It lets them through a mask. In half precision, and with fewer keys than a vector register holds numbers,
    it takes a row of NaN scores for a row that sees nothing, and returns zeros.
    """
    return masked or k_len < LANES or dtype in (torch.float16, torch.bfloat16)


def _leaks(problem: Problem) -> bool:
    """Whether there are numbers that PyTorch's kernel would handle wrongly.

    Checked on the CPU only: elsewhere every call would wait for the device, and only plain causal calls go to
    PyTorch.
    """
    if problem.q.device.type != "cpu" or not needs_finite(
        problem.mask is not None, problem.k_len, problem.q.dtype
    ):
        return False
    return not finite(problem.q, problem.k, problem.v)
