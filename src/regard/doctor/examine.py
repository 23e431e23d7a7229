"""Examine somebody's attention."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from regard.doctor import probes
from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.diagnosis import Diagnosis
from regard.doctor.models import ModelSubject, reads_tokens
from regard.doctor.modules import ModuleSubject
from regard.doctor.subject import Options, Subject
from regard.errors import RegardError

__all__ = ["examine"]

# Findings about single pairs would only repeat what a formula that fits has said.
CONSEQUENCES = (probes.order, probes.padding, probes.dead_rows, probes.finite_mask, probes.precision)
LATER = (probes.cache, probes.gradients, probes.memory)


def examine(
    subject: Callable[..., Any] | torch.nn.Module,
    *,
    layout: str | None = None,
    causal: bool | None = None,
    heads: int | None = None,
    dim: int | None = None,
    mask: str | None = None,
    cache: bool | None = None,
    linear_memory: bool = False,
) -> Diagnosis:
    """Find what is wrong with an attention: a function of q, k and v, a module of tokens, or a whole model.

    Everything is found out by calling it. What cannot be found out is asked for: the `layout` of a function
    (bhnd, bnhd, hnd, bnd, nd, or bnm for heads side by side), the `heads` and the width of one (`dim`) where
    they are fixed, whether it is meant to be `causal`, what its `mask` means (allowed, blocked, additive),
    whether it is used with a `cache`, and whether its memory is meant to grow only with the length.

    >>> def attention(q, k, v):
    ...     return (q @ k.mT).softmax(-1) @ v
    >>> examine(attention).codes
    ('missing-scale',)
    """
    options = Options(layout, causal, heads, dim, mask, cache, linear_memory)
    modules = list(subject.modules()) if isinstance(subject, torch.nn.Module) else []
    training = [module for module in modules if module.training]
    try:
        # What a subject warns about is its own affair, and a filter that raises would end the probe.
        with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case = Case(_subject(subject, options), options)
            probes.repeatable(case)
            if not case.findings:
                _probe(case)
    finally:
        for module in training:
            module.training = True
    seen = case.subject
    return Diagnosis(seen.name, tuple(case.findings), tuple(case.notes), seen.reading())


def _subject(thing: Any, options: Options) -> Subject:
    if isinstance(thing, torch.nn.Module):
        return ModelSubject(thing, options) if reads_tokens(thing) else ModuleSubject(thing, options)
    if not callable(thing):
        raise RegardError(
            f"{type(thing).__name__} cannot be examined; wanted a function of q, k and v, or an nn.Module."
        )
    return FunctionSubject(thing, options)


def _probe(case: Case) -> None:
    probes.formula(case)
    if not case.findings:
        for probe in CONSEQUENCES:
            probe(case)
            if case.findings:
                break
    for probe in LATER if not case.findings else (probes.memory,):
        probe(case)
