"""`examine`: run all probes on an attention implementation."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from regard.doctor import probes
from regard.doctor.adapter import FunctionSubject, signature_of
from regard.doctor.as_built import changed_settings
from regard.doctor.case import Case
from regard.doctor.diagnosis import Diagnosis
from regard.doctor.finding import Finding
from regard.doctor.models import ModelSubject, reads_tokens
from regard.doctor.modules import ModuleSubject
from regard.doctor.report import diagnosis_of
from regard.doctor.subject import Options, Subject
from regard.errors import NotCallableError, RegardError, SubjectError

__all__ = ["examine"]

# If a formula fits, findings of the order probe would only repeat it.
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

    The doctor works by calling it. If something can't be found out that way, pass it: the `layout` of a
    function (bhnd, bnhd, hnd, bnd, nd, or bnm for heads side by side), the number of `heads` and the width of
    one (`dim`) if they are fixed, whether it is meant to be `causal`, the meaning of its `mask` (allowed,
    blocked, additive), whether it is used with a `cache`, and whether its memory should grow linearly.

    >>> def attention(q, k, v):
    ...     return (q @ k.mT).softmax(-1) @ v
    >>> examine(attention).codes
    ('missing-scale',)
    """
    if inspect.isclass(subject):
        # Construct a class with small sizes, as the command does.
        from regard.doctor.construct import construct

        subject = construct(subject)
    options = Options(layout, causal, heads, dim, mask, cache, linear_memory)
    modules = list(subject.modules()) if isinstance(subject, torch.nn.Module) else []
    training = [module for module in modules if module.training]
    try:
        with _quiet():
            case = Case(_subject(subject, options), options)
            _examine(case)
            found = diagnosis_of(case)
    except NotCallableError as error:
        name = getattr(subject, "__name__", type(subject).__name__)
        if error.raised:
            return Diagnosis(name, (Finding("raises", f"always {error.raised}"),))
        return Diagnosis(name, unexamined=(str(error),))
    finally:
        for module in training:
            module.training = True
    return found


def _examine(case: Case) -> None:
    """Run the probes in order; a finding that makes further numbers worthless ends the examination."""
    for probe in (probes.sane, probes.repeatable):
        probe(case)
        if case.findings:
            return
    unread = case.subject.parameters.unread
    if unread and case.options.mask is None:
        case.note(f"{', '.join(unread)} is never read: who passes a mask there gets the same without it")
    _probe(case)
    if case.findings and isinstance(case.subject, ModuleSubject) and case.subject.library == "transformers":
        _as_designed(case, changed_settings(case.subject.original))
    if isinstance(case.subject, ModelSubject) and not case.findings:
        _inside(case, case.subject)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without gradients and warnings, with the caller's random state restored, and without PyTorch's fused
    encoder."""
    fast = torch.backends.mha.get_fastpath_enabled()
    # Ignore warnings of the subject: a filter that turns them into errors would end the probe.
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def _subject(thing: Any, options: Options) -> Subject:
    thing = getattr(thing, "_orig_mod", thing)
    thing = getattr(thing, "_torchdynamo_orig_callable", thing)
    if isinstance(thing, torch.nn.Module):
        return _of_module(thing, options)
    if not callable(thing):
        raise RegardError(
            f"{type(thing).__name__} cannot be examined; wanted a function of q, k and v, or an nn.Module."
        )
    if _takes_tokens(thing):
        return ModuleSubject(Wrapped(thing), options)
    return FunctionSubject(thing, options)


def _of_module(module: torch.nn.Module, options: Options) -> Subject:
    if reads_tokens(module):
        return ModelSubject(module, options)
    weights = any(is_lazy(x) or x.dim() > 1 for x in module.parameters())
    if not weights and (signature_of(module).triple or len(signature_of(module).required) >= 3):
        return FunctionSubject(module.eval(), options)
    return ModuleSubject(module, options)


def _takes_tokens(fn: Callable[..., Any]) -> bool:
    """Whether a function takes one tensor of tokens in place of q, k and v."""
    found = signature_of(fn)
    others = [name for name in found.positional if found.roles[name] in ("other", "query", "key", "value")]
    return not found.triple and len(others) == 1 and not found.loose


class Wrapped(torch.nn.Module):
    """A function of tokens as a module."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = fn
        self.__class__ = type(getattr(fn, "__name__", "function"), (Wrapped,), {})


def _probe(case: Case) -> None:
    for probe in (probes.formula, probes.finite):
        _safely(probe, case)
    if not case.findings:
        for probe in CONSEQUENCES:
            _safely(probe, case)
            if case.findings:
                break
    for probe in LATER if not case.findings else (probes.memory,):
        _safely(probe, case)


def _safely(probe: Callable[[Case], None], case: Case) -> None:
    """Run a probe; an exception of the subject ends this probe only."""
    try:
        probe(case)
    except SubjectError as error:
        case.note(
            f"it raises {str(error).splitlines()[0]} in the probe of {probe.__name__.replace('_', ' ')}"
        )
        if probe is probes.formula and not case.fits:
            case.leave(
                "it raised an error before its output could be compared with the formula; see the note"
            )


def _as_designed(case: Case, changed: dict[str, str]) -> None:
    """What a library's module does as its config says is a note; what was changed since is a finding."""
    found, case.findings = case.findings, []
    changes = "; ".join(changed.values())
    for one in found:
        if changes:
            case.findings.append(replace(one, evidence=f"{changes}: {one.evidence}"))
        else:
            case.note(_designed(one))


def _designed(finding: Finding) -> str:
    return f"{finding.title[0].lower()}{finding.title[1:]}, as its library's class does it"


def _inside(case: Case, model: ModelSubject) -> None:
    """Examine one attention module of each kind in a model, called as the model calls it."""
    found, examined, compared = model.layers(), [], False
    for path, module, fixed in found:
        try:
            inner = Case(ModuleSubject(module, replace(case.options, causal=None), fixed), case.options)
            _safely(probes.formula, inner)
        except NotCallableError:
            continue
        change = model.changed.get(path)
        if change or not model.own:
            where = f"{path}: {change}: " if change else f"{path}: "
            case.findings += [replace(one, evidence=where + one.evidence) for one in inner.findings]
        else:
            for one in inner.findings:
                case.note(f"{path}: {_designed(one)}")
        fits = [fit for fit in inner.fits.values() if fit is not None]
        compared = compared or bool(fits)
        if any(not fit.codes for fit in fits):
            examined.append(path)
    if examined:
        case.note(f"examined inside: {', '.join(examined)}")
    elif model.own and not compared:
        case.note("its attention was not compared with the formula; it was probed from outside only")
    elif not model.own and not case.findings:
        case.leave(
            "it was probed from outside only: none of its modules was recognised as attention. "
            "Examine its attention module by itself"
        )
