"""Which calls the kernels can run, and why not; importing this loads no kernel."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.configs import WIDTHS, generation, interpreted
from regard.scores import ALiBi
from regard.stats.folds import BlockFold, DivergenceFold, Fold, TopKeysFold

__all__ = [
    "MAX_DECODE_QUERIES",
    "MAX_FUSED_TOP_KEYS",
    "MAX_TOP_KEYS",
    "cannot_fold",
    "fits",
    "refusal",
]

MAX_TOP_KEYS = 64
# The most top keys per row that a forward returns.
MAX_FUSED_TOP_KEYS = 8
# The most queries of a decode step.
MAX_DECODE_QUERIES = 8
OLDEST = 8
# Overview blocks must divide a tile or consist of whole tiles, for every tile size in use.
LARGEST_TILE = 128


def refusal(problem: Problem) -> str | None:
    """Why the kernels cannot run a problem, or None if they can."""
    q, scoring = problem.q, problem.scoring
    if not has_triton():
        return "triton is not installed (pip install 'regard[gpu]')"
    if q.device.type != "cuda" and not interpreted():
        return f"it needs an NVIDIA GPU, and q is on {q.device}"
    if q.device.type == "cuda" and generation(q.device) < OLDEST:
        major, minor = torch.cuda.get_device_capability(q.device)
        name = torch.cuda.get_device_name(q.device)
        return f"it needs compute capability 8.0 or more, and {name} has {major}.{minor}"
    if q.dtype == torch.float64:
        return "its kernels compute in float32, and q is float64"
    if not scoring.score.is_dot:
        return f"its kernels compute dot products, not {type(scoring.score).__name__}"
    if scoring.score_mod is not None:
        return "its kernels cannot call a score_mod; say it as bias= or softcap="
    if not isinstance(scoring.bias, Tensor | ALiBi | None):
        return f"its kernels know a tensor bias and ALiBi, not {type(scoring.bias).__name__}"
    if torch.is_grad_enabled() and any(x.requires_grad for x in scoring.parameters()):
        return "its kernels give a trainable bias no gradient"
    if problem.dropout:
        return "its kernels have no dropout"
    widest = max(q.shape[-1], problem.v.shape[-1])
    if widest > WIDTHS[-1]:
        return f"a head dim of {widest} is too wide; 1 to {WIDTHS[-1]} work"
    if 0 in (problem.batch, problem.q_len, problem.k_len, problem.v.shape[-1]):
        return "a length is zero"
    return None


def cannot_fold(fold: Fold) -> str | None:
    """Why no kernel computes a fold, and what to use instead; None if a kernel does."""
    if isinstance(fold, DivergenceFold):
        return "it must see the tiles"
    if isinstance(fold, TopKeysFold) and fold.weight.shape[-1] > MAX_TOP_KEYS:
        return f"at most {MAX_TOP_KEYS} keys per row are fused"
    if isinstance(fold, BlockFold) and not fits(fold.size):
        fitting = f"powers of two and multiples of {LARGEST_TILE}"
        return f"blocks of {fold.size} cells do not fit tiles; {fitting} do"
    return None


def fits(size: int) -> bool:
    """Whether kernels can pool blocks of size × size cells: they divide tiles or consist of whole tiles."""
    return size & (size - 1) == 0 or size % LARGEST_TILE == 0


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None
